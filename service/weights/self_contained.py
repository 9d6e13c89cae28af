"""Model folders that hold all they need: the base lies in them, and a folder appears whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.weights.checkpoint import weight_files
from service.weights.head_weights import LayoutError

# What of a checkpoint belongs to the model beside its weights; all that AutoTokenizer and generate may read.
BESIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
)
_WITH_THEM = ("config.json", "model.safetensors.index.json", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")


@contextmanager
def appearing(output: Path) -> Iterator[Path]:
    """Give a folder beside `output` that takes its place when the block has ended well, and is removed otherwise."""
    output.parent.mkdir(parents=True, exist_ok=True)
    made = output.with_name(f".{output.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
        if output.is_dir():
            output.rmdir()  # an empty one
        made.rename(output)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def copy_base(checkpoint: Path, folder: Path) -> None:
    """Put a checkpoint into the new `folder`: weights as hard links, where both are on one disk, all else copied.

    Raises LayoutError where the disk has no room for a copy.
    """
    folder.mkdir(parents=True)
    for name in (*BESIDE, *_WITH_THEM):
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, folder / name)
    for file in weight_files(checkpoint):
        try:
            os.link(file.resolve(), folder / file.name)
        except OSError:  # another disk, or one without links
            _copy_large(file, folder / file.name)


def _copy_large(file: Path, target: Path) -> None:
    needed, free = file.stat().st_size, shutil.disk_usage(target.parent).free
    if needed > free:
        raise LayoutError(
            f"{file} has {needed / 1e9:.1f} GB, and {free / 1e9:.1f} are free in {target.parent.parent.parent}: make "
            f"room for {(needed - free) / 1e9:.1f} GB there, or name an OUTPUT= on the checkpoint's own disk, where "
            "nothing is copied"
        )
    shutil.copyfile(file, target)
