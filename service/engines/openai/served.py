"""The engine's knowledge of the served model: tokenizer, special tokens and limits from its folder."""

from pathlib import Path

from service.decoding.constraint import GrammarCompiler
from service.weights.model_card import read_card
from service.weights.tokenizer_file import read_tokenizer, tokenizer_file


class ServedModel:
    """A model folder without its weights. Loading takes half a second, most of it for the grammar's tokenizer."""

    def __init__(self, model_dir: Path, cache_dir: Path) -> None:
        """Load the folder. Raises ModelFolderError, or BaseWeightsError where the default base cannot be fetched."""
        self.card = read_card(model_dir)
        path = tokenizer_file(self.card, model_dir, cache_dir)
        self._tokenizer = read_tokenizer(path)
        self.compiler = GrammarCompiler(self._tokenizer.to_str(), self.card.eos_token_id)
        self.bos_text: str = self._tokenizer.id_to_token(self.card.bos_token_id) or ""

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt(self, text: str) -> list[int]:
        """Return the token ids of a prompt, the first token included, exactly as our own engines read it."""
        return [self.card.bos_token_id, *self.tokens(text)]
