"""Tokenizers that put a space before every text are read as ones that put none, for plans are written in parts."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from service.planner.vocabulary import VocabularyError, shipped_vocabulary
from service.weights.tokenizer_file import read_tokenizer

WORDS = [word for _, word in shipped_vocabulary().words()]
MARK = "▁"


def _words_as_tokens(space: str) -> Any:
    """Return a tokenizer to which every word of plan text, after its space, is one token."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", space, *(f"{space}{word}" for word in WORDS)])}
    return Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))


def _saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def _llama_2() -> Any:
    made = _words_as_tokens(MARK)
    made.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    made.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    return made


def _prepend_alone() -> Any:
    made = _words_as_tokens(" ")
    made.normalizer = normalizers.Prepend(" ")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    return made


def _metaspace() -> Any:
    made = _words_as_tokens(MARK)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
    return made


def _byte_level() -> Any:
    made = _words_as_tokens("Ġ")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


@pytest.mark.parametrize("make", [_llama_2, _prepend_alone, _metaspace, _byte_level])
def test_a_text_is_encoded_in_parts_as_it_is_whole(make: Any, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(_saved(make(), tmp_path))

    shipped_vocabulary().check_tokens(tokenizer)
    parts = [f" {word}" for word in WORDS[:5]]
    whole = tokenizer.encode("".join(parts), add_special_tokens=False).ids
    assert whole == [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False).ids]
    assert len(whole) == len(parts)


def test_as_it_stands_in_its_file_llama_2_s_splits_every_word() -> None:
    with pytest.raises(VocabularyError, match="2 tokens of this tokenizer"):
        shipped_vocabulary().check_tokens(_llama_2())
