import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from service.planner.vocabulary import (
    FOREIGN_WORD,
    MARK_WORDS,
    NO_VERTICAL_WORD,
    OFFER_WORDS,
    PART_WORDS,
    REFUSED_WORD,
    SHARED_WORD,
    SORT_WORDS,
    shipped_vocabulary,
)


def _byte_level(words: list[str]) -> Tokenizer:
    """Return a byte-level BPE tokenizer to which each of `words` (after a space) is one token."""
    alphabet = sorted(ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet])}
    merges: list[tuple[str, str]] = []
    for word in words:
        left = "Ġ"
        for character in word:
            if left + character not in vocab:
                vocab[left + character] = len(vocab)
                merges.append((left, character))
            left += character
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


@pytest.fixture(scope="session")
def plan_tokenizer() -> Tokenizer:
    """Return a tokenizer to which every plan word, and each word of these tests, is one token after a space."""
    words = [word for _, word in shipped_vocabulary().words()]
    marks = [*MARK_WORDS.values(), *SORT_WORDS.values(), *OFFER_WORDS.values(), *PART_WORDS]
    return _byte_level([*words, *marks, NO_VERTICAL_WORD, FOREIGN_WORD, SHARED_WORD, REFUSED_WORD, "red", "shoes"])
