"""`python -m service.engines.triton.environment DIR`: install a Triton server and a Python for its stubs.

A stub is a Python of its own that imports what the service does. It links Python's shared library, which Debian's,
Ubuntu's and Docker's Pythons have and pyenv's do not; so DIR is a virtual environment of `--python`. It shares the
packages of the interpreter that runs this where both have the same version, else they are installed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import service
from service.engines.triton.installation import Installation, NoTritonError
from service.requirement_parts import FILE, lines_of

_SOURCE_ROOT = Path(service.__file__).parents[1]
_SERVICE = (
    "service",
    "torch",
)  # apart, because pip takes hashes of all packages or of none
_USAGE_ERROR = 1  # exit code of a stub that starts at all


class EnvironmentFailedError(RuntimeError):
    """Raised when the environment cannot be made; the message says what to do."""


def make_environment(folder: Path, python: Path) -> Installation:
    """Make the environment anew. Raises EnvironmentFailedError."""
    _run([python, "-m", "venv", "--clear", "--without-pip", folder])
    inside = folder / "bin" / "python"
    version, packages = _said_by(inside)
    if version == _own_version():
        lent = [path for path in sys.path if path.endswith("-packages")]
        (Path(packages) / "peakplan.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    else:
        for part in _SERVICE:
            _install(inside, part)
    _install(inside, "tritonserver", "--no-deps")  # last, because it replaces the service's numpy by an older one
    try:
        installation = Installation.find(folder)
    except NoTritonError as error:
        raise EnvironmentFailedError(f"nvidia-pytriton has no stub for Python {version}") from error
    _check_stub(installation, version)
    return installation


def _check_stub(installation: Installation, version: str) -> None:
    environment = installation.environment({}, threads=1)
    tried = subprocess.run([str(installation.stub)], env=environment, capture_output=True, text=True, check=False)
    if tried.returncode != _USAGE_ERROR:
        raise EnvironmentFailedError(
            f"Triton's stub does not start: {tried.stderr.strip()} (apt-get install libpython{version})"
        )


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _said_by(python: Path) -> tuple[str, str]:
    """Return an interpreter's version and its packages' folder."""
    program = "import sys, sysconfig; print(*sys.version_info[:2], sep='.'); print(sysconfig.get_path('purelib'))"
    version, packages = _run([python, "-c", program]).splitlines()
    return version, packages


def _install(python: Path, part: str, *words: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines_of(part, _SOURCE_ROOT / FILE)))
        file.flush()
        _run([sys.executable, "-m", "pip", "--python", python, "install", *quiet, *words, "--requirement", file.name])


def _run(command: list[Path | str]) -> str:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EnvironmentFailedError(f"{words[0]}: {error.strerror}; --python names another Python") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EnvironmentFailedError(f"{' '.join(words)}: {reason}")
    return done.stdout


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m service.engines.triton.environment", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, default=Path("/usr/bin/python3"), help="one with a shared library")
    options = parser.parse_args(words)
    try:
        print(make_environment(options.folder.absolute(), options.python).server)
    except EnvironmentFailedError as error:
        print(f"No Triton: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
