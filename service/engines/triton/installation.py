"""Finds a Triton server on this machine, and builds the command that starts it on our model repository.

`python -m service.engines.triton.installation DIR` installs one with a Python for its stubs. A stub is a Python of its
own that imports what the service does. It links Python's shared library, which Debian's, Ubuntu's and Docker's Pythons
have and pyenv's do not; so DIR is a virtual environment of `--python`. It shares the packages of the interpreter that
runs this where both have the same version, else they are installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import service
from service.requirement_parts import FILE, lines_of

_OWN_VENV = Path(service.__file__).parents[1] / ".venv-triton"  # `peakplan tools install triton`
_NVIDIA_CONTAINER = Path("/opt/tritonserver")
_IN_WHEEL = "lib/python3.*/*-packages/pytriton/tritonserver"

_ROOT = Path(service.__file__).parents[1]
_SERVICE = (
    "service",
    "torch",
)  # apart, because pip takes hashes of all packages or of none
_USAGE_ERROR = 1  # exit code of a stub that starts at all


class NoTritonError(RuntimeError):
    """Raised when there is no Triton server here; the message says how to get one."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A Triton server with its python backend, and the Python for its stubs."""

    server: Path
    backends: Path
    python: Path  # folder of the stubs' python3
    libraries: Path | None = None  # libraries that the server links to, where they are not the system's
    stub: Path | None = None  # a python backend's stub where the backend brings none

    @classmethod
    def find(cls, home: Path | None = None) -> "Installation":
        """Look in `home`, else in .venv-triton, this interpreter's packages, and NVIDIA's container.

        `home` is a virtual environment that holds nvidia-pytriton, or a folder like /opt/tritonserver. Raises
        NoTritonError.
        """
        places = [home] if home is not None else [_OWN_VENV, Path(sys.prefix), _NVIDIA_CONTAINER]
        for place in places:
            for found in (*cls._of_wheel(place), *cls._of_container(place)):
                return found
        raise NoTritonError(
            f"no tritonserver in {' or '.join(map(str, places))}. `peakplan tools install triton` puts one into "
            f"{_OWN_VENV.name}; "
            "PEAKPLAN_TRITON_HOME names another place"
        )

    @classmethod
    def _of_wheel(cls, place: Path) -> Iterator["Installation"]:
        """Yield installations of nvidia-pytriton in an environment; it brings a stub for each version of Python."""
        for folder in sorted(place.glob(_IN_WHEEL)):
            packages = folder.parents[1]
            version = packages.parent.name.removeprefix("python")
            stub = folder / "python_backend_stubs" / version / "triton_python_backend_stub"
            if (folder / "bin" / "tritonserver").is_file() and stub.is_file():
                yield cls(
                    server=folder / "bin" / "tritonserver",
                    backends=folder / "backends",
                    python=place / "bin",
                    libraries=packages / "nvidia_pytriton.libs",
                    stub=stub,
                )

    @classmethod
    def _of_container(cls, place: Path) -> Iterator["Installation"]:
        """Yield the installation in NVIDIA's own layout, whose stub is for that container's Python."""
        if (place / "bin" / "tritonserver").is_file() and (place / "backends" / "python").is_dir():
            yield cls(place / "bin" / "tritonserver", place / "backends", Path(sys.executable).parent)

    def link_backends(self, folder: Path) -> Path:
        """Return the folder of backends for the server: links in `folder`, where the stub lies apart from them."""
        if self.stub is None:
            return self.backends
        linked = folder / "python"
        shutil.rmtree(linked, ignore_errors=True)
        linked.mkdir(parents=True)
        for path in (*(self.backends / "python").iterdir(), self.stub):
            (linked / path.name).symlink_to(path)
        return folder

    def command(self, repository: Path, backends: Path, address: str, *, replicas: int, stop_seconds: int) -> list[str]:
        """Return the command of a server that starts empty: the gateway loads each model. `address` is host:port."""
        host, port = address.strip().replace("[", "").replace("]", "").rsplit(":", 1)
        return [
            str(self.server),
            f"--model-repository={repository.resolve()}",
            f"--backend-directory={backends.resolve()}",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",  # or every load starts one more stub to ask what config.pbtxt says
            f"--model-load-thread-count={replicas}",
            f"--grpc-address={host}",
            f"--grpc-port={port}",
            "--allow-http=false",
            "--allow-metrics=false",
            f"--exit-timeout-secs={stop_seconds}",
            "--log-info=false",
        ]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the server's environment, inherited by stubs: their Python first in PATH, one thread each."""
        libraries = [str(self.libraries)] if self.libraries is not None else []
        return {
            **base,
            "PATH": os.pathsep.join([str(self.python), base.get("PATH", os.defpath)]),
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [base.get("LD_LIBRARY_PATH")])]),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }


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
    environment = installation.environment({})
    tried = subprocess.run([str(installation.stub)], env=environment, capture_output=True, text=True, check=False)
    if tried.returncode != _USAGE_ERROR:
        raise EnvironmentFailedError(
            f"Triton's stub does not start: {tried.stderr.strip()} (apt-get install libpython{version})"
        )


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _said_by(python: Path) -> tuple[str, str]:
    program = "import sys, sysconfig; print(*sys.version_info[:2], sep='.'); print(sysconfig.get_path('purelib'))"
    version, packages = _run([python, "-c", program]).splitlines()
    return version, packages


def _install(python: Path, part: str, *words: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines_of(part, _ROOT / FILE)))
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
        prog="python -m service.engines.triton.installation", description=(__doc__ or "").partition("\n")[0]
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
