"""Make this checkout's virtual environments: `peakplan tools install NAME...`.

There are four, because some packages exclude each other:

- `.venv`: the service, fleets, tests, and every tool that pip can resolve together with them.
- `.venv-triton`: tritonserver's stubs need NumPy 1.26, and a Python with a shared library.
- `.venv-checkov`: checkov pins an older boto3 and packageurl-python than the tests' tools take.
- `.venv-peers`: what ours is measured beside, one group of pyproject.toml at a time. vLLM and NxDI each pin a PyTorch,
  the peers compile theirs, and Locust brings pytest a plugin. A command that needs another group makes it anew.

A stamp in the environment has the digest of what decided its contents, so a second call takes no time and no network.
`make` runs `python3 peakplan/environment.py NAME...` on a machine that has nothing, so it imports the standard library
alone.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TRITON = ROOT / ".venv-triton"
CHECKOV = ROOT / ".venv-checkov"
PEERS = ROOT / ".venv-peers"
TYPESCRIPT = ROOT / "clients" / "typescript"
WEBSITE = ROOT / "docs" / "website"
_LOCK = "requirements-dev.txt"
# After the packages with hashes, which have all that PyTorch needs. Nothing reads these 180 MB.
_UNUSED = (
    "torch/include", "torch/test", "torch/bin/test_*", "torch/bin/*Test", "torch/bin/protoc*",
    "sympy/*/tests", "numpy/*/tests", "networkx/*/tests",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Something to install: what it needs first, the files and groups that decide it, and the file that notes it."""

    needs: tuple[str, ...]
    inputs: tuple[str, ...]
    make: Callable[[], None]
    stamp: Path
    text: str


def have(*names: str) -> None:
    """Install these steps and those they need, unless they are installed. Exits where a command fails."""
    if sys.version_info < (3, 11):  # noqa: UP036 - it runs before anything says so
        sys.exit("Peakplan needs Python 3.11 or newer; name one with PYTHON=")
    if names and not (ROOT / "pyproject.toml").is_file():
        sys.exit("this command is not in the wheel: it runs from a checkout of Peakplan's sources")
    for name in names:
        step = STEPS[name]
        have(*step.needs)
        if not is_there(name):
            try:
                step.make()
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name} was not installed: {' '.join(map(str, error.cmd))} ended with {error.returncode}")
            note(name)


def is_there(name: str) -> bool:
    """Tell whether a step is done, with the inputs as they are."""
    stamp = STEPS[name].stamp
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _digest(name)


def note(name: str) -> None:
    """Write down that a step is done."""
    STEPS[name].stamp.write_text(_digest(name), encoding="utf-8")


def made(name: str) -> Path:
    """Make the environment that a step is in, if it is not there, and return its Python."""
    have(name)
    return STEPS[name].stamp.parent / "bin" / "python"


def _digest(name: str) -> str:
    """Return the digest of a step's inputs: whole files, groups of pyproject.toml by `group:NAME`."""
    texts = [name]
    for each in STEPS[name].inputs:
        kind, _, group = each.partition(":")
        if group:
            import tomllib

            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            texts.append(repr(project["dependency-groups"][group]))
        elif kind.isupper():
            texts.append(os.environ.get(kind, ""))
        else:
            texts.append((ROOT / each).read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _run(*command: str | Path, **variables: str) -> None:
    subprocess.run([str(word) for word in command], cwd=ROOT, env={**os.environ, **variables}, check=True)


def _pip(*words: str | Path, python: Path = PYTHON) -> None:
    """Install into an environment with the pip of `.venv`: another Python's own may be too old for groups."""
    _run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--no-compile", *words)


def _pip_lines(lines: list[str], *words: str | Path, option: str = "--requirement") -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        _pip(option, file.name, *words)


def _read(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def _index() -> list[str]:
    """Return pip's option for an index with CPU builds of PyTorch, where the environment names one."""
    index = os.environ.get("TORCH_INDEX")
    return ["--extra-index-url", index] if index else []


def _command() -> None:
    if not PYTHON.exists():
        _run(sys.executable, "-m", "venv", VENV)
    _run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip==26.3")
    _pip("--quiet", "--no-deps", "--editable", ".")  # the command itself: one line that points to this checkout


def refuse_musl() -> None:
    """Exit on a system whose C library has no wheels of PyTorch: pip would compile for minutes before it says so."""
    if "musl" in (sysconfig.get_config_var("SOABI") or ""):
        sys.exit(
            "PyTorch and llguidance have no wheels for this system's C library, musl (Alpine): use the container image "
            "(docs/container.md) or a system with glibc"
        )


def _service() -> None:
    refuse_musl()
    sys.path.insert(0, str(ROOT))
    from service.requirement_parts import FILE, lines_of

    packages = lines_of("service", ROOT / FILE)
    count = sum("==" in line for line in packages)
    print(
        f"Installing what serving needs: {count} packages and PyTorch, about 300 MB to download (CPU build: on Linux "
        "give\nTORCH_INDEX=, the address that PyTorch's Get started page shows for CPU; without it CUDA comes along, "
        "several GB).",
        flush=True,
    )
    _pip_lines(packages)
    _pip_lines(lines_of("torch", ROOT / FILE), *_index())
    for pattern in _UNUSED:
        for path in glob.glob(str(VENV / "lib" / "python3*" / "site-packages" / pattern)):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _fleet() -> None:
    """Install the packages of requirements.txt by hash; PyTorch, which has none, is left to the service."""
    print("Installing what a fleet needs: the CDK and its Node; about 250 MB to download.", flush=True)
    named = {line.partition("==")[0] for line in _read("requirements.txt")}
    found, ours = [], False
    for line in _read(_LOCK):
        if line and not line.startswith((" ", "#")):
            ours = line.partition("==")[0] in named
        if ours:
            found.append(line)
    _pip_lines(found)


def _test() -> None:
    count = sum("==" in line for line in _read(_LOCK))
    print(f"Installing what the tests need: {count} packages; about 500 MB to download.", flush=True)
    _pip("--quiet", "--requirement", _LOCK)
    note("fleet")


def _group(name: str) -> Callable[[], None]:
    """Return what installs a group of pyproject.toml into `.venv`, beside the lock's versions."""

    def install() -> None:
        # Without hashes: pip wants those of all packages or of none.
        pins = [line.rstrip(" \\") for line in _read(_LOCK) if re.match(r"[\w.-]+(\[[\w,-]+\])?==", line)]
        pins = [re.sub(r"\[.*?\]", "", pin) for pin in pins]
        _pip_lines(pins, "--quiet", "--group", name, option="--constraint")

    return install


def _apart(folder: Path, name: str, *words: str) -> Callable[[], None]:
    """Return what makes an environment with one group of pyproject.toml."""

    def make() -> None:
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _pip("--quiet", "--group", name, *words, *_index(), python=folder / "bin" / "python")

    return make


def _peers() -> None:
    _run(sys.executable, "-m", "venv", "--clear", PEERS)
    _run(PYTHON, "-m", "rehearsal.bench.peers.environment", PEERS)
    if os.environ.get("PEAKPLAN_KERNEL") == "avx2":  # a llama.cpp held to that, too
        _run(PYTHON, "-m", "rehearsal.bench.peers.environment", "--avx2", PEERS)


def _vllm() -> None:
    _run(sys.executable, "-m", "venv", "--clear", PEERS)
    _run(PYTHON, "-m", "rehearsal.bench.vllm", "--install", PEERS)


def _triton() -> None:
    python = os.environ.get("TRITON_PYTHON", "/usr/bin/python3")
    _run(PYTHON, "-m", "service.engines.triton.installation", "--python", python, TRITON)


def _npm(folder: Path, *words: str) -> Callable[[], None]:
    """Return what installs a folder's Node packages, with the Node of Python's package."""

    def install() -> None:
        path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", "")])
        quiet = ["--loglevel=error", "--no-audit", "--no-fund"]
        done = subprocess.run(
            ["npm", "ci", *words, *quiet], cwd=folder, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL
        )
        done.check_returncode()

    return install


def _in_venv(name: str, text: str) -> Step:
    return Step(("test",), (f"group:{name}",), _group(name), VENV / f"{name}.stamp", text)


def _in_peers(name: str, make: Callable[[], None], text: str) -> Step:
    return Step(("test",), (f"group:{name}", "PEAKPLAN_KERNEL"), make, PEERS / "stamp", text)


STEPS = {
    "command": Step((), ("pyproject.toml", "hatch_build.py"), _command, VENV / "command.stamp", "the command itself"),
    "service": Step(("command",), ("requirements-image.txt",), _service, VENV / "service.stamp", "what serving needs"),
    "fleet": Step(("command",), ("requirements.txt", _LOCK), _fleet, VENV / "fleet.stamp", "a fleet's commands"),
    "test": Step(("service",), (_LOCK,), _test, VENV / "test.stamp", "tests, benches and training"),
    "cdk": Step(("fleet",), ("package-lock.json",), _npm(ROOT), VENV / "cdk.stamp", "the CDK's command line"),
    "typescript": Step(
        ("fleet",), ("clients/typescript/package-lock.json",), _npm(TYPESCRIPT), TYPESCRIPT / "node_modules" / "stamp",
        "the compiler of @peakplan/client",
    ),
    "site": Step(
        ("docs",), ("docs/website/package-lock.json",), _npm(WEBSITE, "--ignore-scripts"),
        WEBSITE / "node_modules" / "stamp", "MkDocs Material, and what draws the site's diagrams (0.1 GB)",
    ),
    "awscli": _in_venv("awscli", "the AWS CLI, with which tests run the runbooks' commands (0.1 GB)"),
    "docs": _in_venv("docs", "MkDocs Material"),
    "fuzz": _in_venv("fuzz", "libFuzzer for Python"),
    "kernels": _in_venv("kernels", "the compiler of every processor's kernels"),
    "stack": _in_venv("stack", "Envoy, and what checks the stack's chart and board"),
    "triton": Step(
        ("service",), ("requirements-image.txt",), _triton, TRITON / "stamp",
        "tritonserver (Linux on x86-64; TRITON_PYTHON= a Python with its shared library)",
    ),
    "checkov": Step(
        ("command",), ("group:checkov",), _apart(CHECKOV, "checkov"), CHECKOV / "stamp", "checkov (0.2 GB)"
    ),
    "peers": _in_peers("peers", _peers, "llama.cpp, ONNX Runtime, OpenVINO and CTranslate2 (0.7 GB; minutes)"),
    "vllm": _in_peers("vllm", _vllm, "vLLM for processors (0.6 GB to download, 3 GB)"),
    "neuron-conformance": _in_peers(
        "neuron-conformance", _apart(PEERS, "neuron-conformance", "--editable", ".[service,plots]"),
        "what the real NxDI source needs on a CPU",
    ),
}  # fmt: skip


def main() -> None:
    """Install what the command line names."""
    listed = "\n".join(f"  {name:20}{step.text}" for name, step in STEPS.items())
    parser = argparse.ArgumentParser(
        prog="peakplan tools install",
        description=f"Install what commands and tests need, by hash where a lock names it.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", choices=STEPS)
    have(*parser.parse_args().names)


if __name__ == "__main__":
    main()
