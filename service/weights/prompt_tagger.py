"""Reads a model folder's prompt tagger: prompt_tagger.json and prompt_tagger.safetensors."""

from dataclasses import fields
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.decoding.prompt_tags import PromptTagger, TaggerWeights
from service.weights.model_card import existing

CARD, WEIGHTS = "prompt_tagger.json", "prompt_tagger.safetensors"


class PromptTaggerCard(BaseModel):
    """The content of prompt_tagger.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    phrases: list[str] = Field(min_length=1, description="before words that answers copy from their prompts")
    openings: list[str] = Field(min_length=1, description="before the first of them; may be empty")
    closings: list[str] = Field(min_length=1, description="after the last word that is copied; may be empty")
    p_min: float = Field(ge=0, lt=1, description="of a chain, to be drafted on a device that takes any size")


def load_prompt_tagger(model_dir: Path, tokenizer: Tokenizer, hidden_size: int) -> PromptTagger | None:
    """Read a model folder's tagger, where it has one, for states of a width.

    Raises ValueError, SafetensorError or ModelFolderError.
    """
    path = model_dir / CARD
    if not path.is_file():
        return None
    card = PromptTaggerCard.model_validate_json(path.read_text(encoding="utf-8"))
    phrases, openings, closings = (
        tuple(tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
        for texts in (card.phrases, card.openings, card.closings)
    )
    weights = load_tagger_weights(existing(model_dir / WEIGHTS))
    tagger = PromptTagger(phrases, openings, closings, weights, card.p_min)
    if tagger.hidden_size != hidden_size:
        raise ValueError(f"its prompt tagger reads states of {tagger.hidden_size}, and the base's are {hidden_size}")
    return tagger


def load_tagger_weights(path: Path) -> TaggerWeights:
    """Read a .safetensors file. Raises ValueError where a tensor is missing or unknown."""
    state, parts = load_file(path), {field.name for field in fields(TaggerWeights)}
    if set(state) != parts:
        raise ValueError(f"{path.name} is no tagger: {', '.join(sorted(set(state) ^ parts))}")
    return TaggerWeights(**{name: tensor.float() for name, tensor in state.items()})
