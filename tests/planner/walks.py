"""Questions and random walks through their grammars, byte by byte: any text that a model could write."""

import random
from functools import cache

import llguidance
import llguidance.numpy
import numpy as np
from hypothesis import strategies as st

from service.planner.grammar import plan_grammar
from service.planner.question import Question, clean
from service.planner.vocabulary import shipped_vocabulary

MAX_WALK_BYTES = 6000
_STOP_LENGTH = 300  # from this length on, a walk takes the shortest way to the end, as far as it can tell

_OPENINGS = (b"", b" find", b" Find", b" ask", b" Ask")  # most walks would otherwise begin with an ending intent
_SHOPPING_TEXT = (
    "red shoes nike under over between and $40 $20-$40 50 bucks fifty two hundred 1,299.99 1.5k 10\" 6' men's size 8 "
    "not leather without pockets for women type Type brand Under Over try Try any Any find reviews catalog answers "
    "what's st. oz. (new) \"quoted\" a/b c++ don't ½ 5kg x, y; z! café 日本 👟 \\ ' \" ` %regex | : /x/ \\n"
)

words = st.one_of(st.sampled_from(_SHOPPING_TEXT.split()), st.text(min_size=1, max_size=12))
texts = st.one_of(st.lists(words, min_size=1, max_size=14).map(" ".join), st.text(min_size=1, max_size=60))
queries = texts.filter(lambda text: bool(clean(text)))
questions = st.builds(Question.parse, queries, st.lists(texts, max_size=3))


@cache
def byte_tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer("byte")


def random_walk(question: Question, seed: int) -> str:
    """Return a text that the question's grammar admits, chosen byte by byte."""
    tokenizer = byte_tokenizer()
    matcher = llguidance.LLMatcher(tokenizer, plan_grammar(question, shipped_vocabulary()))
    assert not matcher.get_error(), matcher.get_error()
    chooser = random.Random(seed)
    prefill_draft = chooser.choice(_OPENINGS)
    assert matcher.consume_tokens(list(prefill_draft)), matcher.get_error()
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    written = bytearray(prefill_draft)
    while not matcher.is_stopped():
        llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
        legal = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        options = [int(token) for token in legal if token < 256]
        if not options or (matcher.is_accepting() and chooser.random() < 0.5):
            break
        byte = _towards_the_end(options) if len(written) > _STOP_LENGTH else chooser.choice(options)
        assert matcher.consume_token(byte), matcher.get_error()
        written.append(byte)
        assert len(written) < MAX_WALK_BYTES, "a walk without end"
    assert matcher.is_accepting()
    return written.decode("utf-8")


def _towards_the_end(options: list[int]) -> int:
    """Prefer bytes that end sooner: a space ends a word, and "A" starts "Any", which ends the text."""
    for wanted in b" Any":
        if wanted in options:
            return wanted
    return options[0]
