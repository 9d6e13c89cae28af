"""Prepares the base weights while the image is built, so that no container downloads anything when it starts."""

import sys
from pathlib import Path

from service.weights.base_weights import BaseWeightsError
from service.weights.model_folder import ModelFolderError, base_folder, read_card


def main(words: list[str]) -> int:
    """Run `bake.py MODEL_DIR CACHE_DIR`, which writes the base weights into CACHE_DIR."""
    if len(words) != 2:
        print("usage: python -m service.container.bake MODEL_DIR CACHE_DIR", file=sys.stderr)
        return 2
    model_dir, cache_dir = map(Path, words)
    try:
        base = base_folder(read_card(model_dir), model_dir, cache_dir)
        print(f"base weights: {base}")
    except (BaseWeightsError, ModelFolderError) as error:
        print(f"this image cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
