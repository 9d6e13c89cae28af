"""Finds and reads a model folder's tokenizer, for engines that run no model of their own: nothing here needs torch."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from service.weights.base_weights import BASE_NAME, ensure_base_weights
from service.weights.model_card import ModelCard, ModelFolderError


def tokenizer_file(card: ModelCard, model_dir: Path, cache_dir: Path) -> Path:
    """Return the base's tokenizer.json; the default base is fetched when it is not there yet.

    Raises ModelFolderError, or BaseWeightsError for the default base.
    """
    base = ensure_base_weights(cache_dir) if card.base == BASE_NAME else (model_dir / card.base).resolve()
    path = base / "tokenizer.json"
    if not path.is_file():
        raise ModelFolderError(f"{model_dir / 'model.json'} names the base {card.base!r}, and {path} is missing")
    return path


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json as one whose texts may be parts of a longer one, which is how plans are written.

    Tokenizers like Llama 2's put a space before every text, so that " Word" gets two: here none is put anywhere. A text
    that begins with its own space has the tokens that such a tokenizer gives it without. Raises ModelFolderError.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exceptions
        raise ModelFolderError(f"{path} is not a tokenizer: {error}") from error
    put_no_space(tokenizer)
    return tokenizer


def put_no_space(tokenizer: Any) -> None:
    """Have a tokenizer put no space before a text, in place."""
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.Prepend):
        tokenizer.normalizer = normalizers.Sequence([])
    elif isinstance(normalizer, normalizers.Sequence):
        several: Any = normalizer
        kept = [part for part in several if not isinstance(part, normalizers.Prepend)]
        if len(kept) < len(several):
            tokenizer.normalizer = normalizers.Sequence(kept)
    before: Any = tokenizer.pre_tokenizer
    parts: Any = before if isinstance(before, pre_tokenizers.Sequence) else (before,)
    for part in parts:
        if getattr(part, "add_prefix_space", False):  # of ByteLevel
            part.add_prefix_space = False
        if getattr(part, "prepend_scheme", "never") != "never":  # of Metaspace
            part.prepend_scheme = "never"
