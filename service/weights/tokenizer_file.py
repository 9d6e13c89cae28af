"""Finds a model folder's tokenizer, for engines that run no model of their own: nothing here needs torch."""

from pathlib import Path

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
