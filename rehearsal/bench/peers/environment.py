"""The peers, and the environment they are installed into: `peakplan tools install peers`.

Every line of pyproject.toml's group `peers` is installed by itself, so that one that needs a compiler, or has no build
for this machine, costs no other; what pip said of it is kept in the environment and listed in the figure. A line
without a version takes the one of the environment that this runs in.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
_FAILURES = "not-installed.json"
# A second llama.cpp for AVX2 alone, for figures of that kernel on a larger machine.
_AVX2 = "avx2"
_AVX2_ONLY = "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"


@dataclass(frozen=True)
class Peer:
    """An engine in one precision, and the package that it needs."""

    name: str  # as worker.py knows it
    requirement: str

    def forced_environment(self, python: Path) -> dict[str, str]:
        """Return variables that restrict the peer to AVX2 where PEAKPLAN_KERNEL=avx2; none where it has no switch."""
        if os.environ.get("PEAKPLAN_KERNEL") != _AVX2:
            return {}
        if self.requirement == "llama-cpp-python" and _avx2_folder(python).is_dir():
            return {"PYTHONPATH": str(_avx2_folder(python))}
        if self.requirement == "ctranslate2":
            return {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
        return {}

    def instructions(self, python: Path) -> str:
        """Return the instructions with which its figures are made."""
        return "AVX2 alone" if self.forced_environment(python) else "what it detects"


PEERS = (
    Peer("llama.cpp Q8_0", "llama-cpp-python"),
    Peer("llama.cpp Q4_0", "llama-cpp-python"),
    Peer("ONNX Runtime int8, blocks", "onnxruntime"),
    Peer("ONNX Runtime int8, dynamic", "onnxruntime"),
    Peer("OpenVINO int8", "openvino-genai"),  # oneDNN's own limit (ONEDNN_MAX_CPU_ISA) makes it answer nothing
    Peer("CTranslate2 int8", "ctranslate2"),
)


def why_not_installed(python: Path, peer: Peer) -> str:
    """Return why a peer's package is not installed; "" where it is, or no installation was tried."""
    if not python.exists():
        return "not installed: peakplan bench peers installs it"
    path = python.parents[1] / _FAILURES
    failures: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    reason = failures.get(peer.requirement)
    return f"not installed: {reason}" if reason else ""


def requirements() -> list[str]:
    """Return the lines of the group, with this environment's versions where they have none."""
    lines: list[str] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"]["peers"]
    return [line if "==" in line else f"{line}=={version(line).partition('+')[0]}" for line in lines]


def install(environment: Path) -> dict[str, str]:
    """Install every package that can be installed; return the reasons of the others."""
    failures = {}
    for requirement in requirements():
        print(f"installing {requirement}", flush=True)
        if reason := _pip(environment, [requirement]):
            failures[requirement.partition("==")[0]] = reason
            print(f"  {reason}", flush=True)
    (environment / _FAILURES).write_text(json.dumps(failures, indent=1) + "\n", encoding="utf-8")
    return failures


def install_avx2(environment: Path) -> None:
    """Build llama.cpp once more, for AVX2 only, beside the other build."""
    (wanted,) = (line for line in requirements() if line.startswith("llama-cpp-python"))
    target = str(_avx2_folder(environment / "bin" / "python"))
    words = ["--no-cache-dir", "--no-binary", "llama-cpp-python", "--no-deps", "--upgrade", "--target", target, wanted]
    if reason := _pip(environment, words, CMAKE_ARGS=_AVX2_ONLY):
        print(f"llama.cpp for AVX2: {reason}")


def _avx2_folder(python: Path) -> Path:
    return python.parents[1] / _AVX2


def _pip(environment: Path, words: list[str], **variables: str) -> str:
    """Return the last line of pip's error; "" for success."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    ended = subprocess.run([*command, *words], env={**os.environ, **variables}, capture_output=True, text=True)
    if ended.returncode == 0:
        return ""
    errors = [line for line in ended.stderr.splitlines() if "error" in line.lower()] or ["pip failed"]
    return errors[-1].strip()[:300]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.bench.peers.environment", description=__doc__)
    parser.add_argument("environment", type=Path, help="a virtual environment")
    parser.add_argument("--avx2", action="store_true", help="only llama.cpp, for AVX2 alone, beside what is there")
    arguments = parser.parse_args()
    if arguments.avx2:
        install_avx2(arguments.environment)
    else:
        install(arguments.environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
