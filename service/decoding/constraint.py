"""The position in a grammar while tokens are decoded: which tokens are legal, which are forced, and how to go back.

llguidance does the parsing (https://github.com/guidance-ai/llguidance). It tokenizes forced strings canonically: the
last token before a free boundary is held back until the boundary is decided, because it could be part of a longer one.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

_BITS_A_WORD = 32
_NOTHING: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_SILENT = 0
_GOES_ON = (0x80, 0xBF)  # bytes of UTF-8 after a character's first
_LIMITS = LLParserLimits(verbose_errors=False)  # verbose errors would quote the shopper's words


class GrammarError(ValueError):
    """Raised for a grammar that does not compile, or a token that it does not allow."""


class Constraint(Protocol):
    """A position in a grammar, from which every accepted token can be taken back."""

    def legal(self) -> NDArray[np.int64]:
        """Return the ids of the tokens that may come next, ascending; an empty array when the grammar is finished."""
        ...

    def forced(self, *, look: bool = True) -> list[int]:
        """Return the tokens that must come next; none when there is a choice or the grammar is finished.

        Without `look`, which is five times faster, forced tokens that only a scan of the whole vocabulary reveals are
        missed.
        """
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance past these tokens. Raises GrammarError for one that is not legal."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens."""
        ...

    def finished(self) -> bool:
        """Tell whether no further token may follow."""
        ...

    def allows(self, token: int) -> bool:
        """Tell whether a token is legal: ten times faster than `legal`, where that was not asked here before."""
        ...


def known(grammar: Constraint | Future[Constraint]) -> Constraint:
    """Wait for a constraint that may still be compiling. Raises whatever its compilation raised."""
    return grammar.result() if isinstance(grammar, Future) else grammar


def accept_forced(constraint: Constraint, limit: int, *, look: bool = True) -> list[int]:
    """Advance the constraint past the tokens that it forces, at most `limit` of them, and return them."""
    run: list[int] = []
    while len(run) < limit and (forced := constraint.forced(look=look)[: limit - len(run)]):
        constraint.accept(forced)
        run += forced
    return run


class GrammarCompiler:
    """Compiles grammars for one tokenizer, whose prefix tree is built once (0.2 s)."""

    def __init__(self, tokenizer_json: str, eos_token: int) -> None:
        """Take `tokenizer_json`, the text of a Hugging Face tokenizer.json."""
        # Slices of the vocabulary help grammars that leave much open; one of words they cost a tenth of its compiling.
        self._tokenizer = LLTokenizer(tokenizer_json, eos_token=eos_token, slices=[])
        self._eos_token = eos_token
        tokens = range(self._tokenizer.vocab_size)
        self._special = frozenset(token for token in tokens if self._tokenizer.is_special_token(token))

    def compile(self, lark: str) -> "GrammarConstraint":
        """Return the start of a grammar in llguidance's Lark dialect (1-2 ms). Raises GrammarError with the reason."""
        matcher = LLMatcher(self._tokenizer, lark, log_level=_SILENT, limits=_LIMITS)
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return GrammarConstraint(matcher, self._tokenizer, self._eos_token, self._special)

    def spell(self, text: str) -> list[tuple[int, bytes]]:
        """Return tokens, each with its bytes, that spell a text; the model's tokenizer might choose others."""
        return [(token, self._tokenizer.decode_bytes([token])) for token in self._tokenizer.greedy_tokenize(text)]


class _Position:
    """One position in a grammar, and what was found out there; `depth` tokens were accepted before it."""

    __slots__ = ("after", "before", "depth", "finished", "forced", "legal", "token")

    def __init__(self, before: "_Position | None" = None, token: int = -1) -> None:
        self.before = before
        self.token = token  # that led here
        self.depth: int = before.depth + 1 if before else 0
        self.after: dict[int, _Position] = {}
        self.legal: NDArray[np.int64] | None = None
        self.forced: list[int] | None = None
        self.finished: bool | None = None


class GrammarConstraint:
    """A `Constraint` over an llguidance matcher.

    Where a grammar may end but may also go on, the end-of-sequence token is legal, and choosing it is a decision like
    any other. Where nothing else is legal the grammar is finished, and that token is not sampled.

    Drafting and verifying come to the same positions several times: what was found out at one is kept, and the matcher
    moves only where there is something to find out.
    """

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, eos_token: int, special: frozenset[int]) -> None:
        self._matcher, self._tokenizer = matcher, tokenizer
        self._eos_token = eos_token
        self._special = special  # tokens that no text is, though a text may be written as one of them is
        self._mask = np.zeros(-(-tokenizer.vocab_size // _BITS_A_WORD), dtype=np.int32)
        self._mask_address: int = self._mask.ctypes.data
        self._here = self._matched = _Position()  # where the text stands, and where the matcher does

    def legal(self) -> NDArray[np.int64]:
        here = self._here
        if here.legal is None:
            here.legal = self._read_mask(self._matcher_here())
        return here.legal

    def forced(self, *, look: bool = True) -> list[int]:
        here = self._here
        if here.forced is None:
            here.forced = [] if self.finished() else self._read_forced(self._matcher_here())
        if here.forced or not look or self.finished():
            return here.forced
        legal = self.legal()
        return legal.tolist() if legal.size == 1 else []

    def accept(self, tokens: Sequence[int]) -> None:
        for at, token in enumerate(tokens):
            if (after := self._here.after.get(token)) is None:
                self._consume(tokens[at:])
                return
            self._here = after

    def rollback(self, count: int) -> None:
        if count > self._here.depth:
            raise GrammarError(f"{count} tokens cannot be taken back, of {self._here.depth}")
        for _ in range(count):
            self._here = _before(self._here)

    def finished(self) -> bool:
        here = self._here
        if here.finished is None:
            matcher = self._matcher_here()
            here.finished = matcher.is_stopped() or (matcher.is_accepting() and not self.legal().size)
        return here.finished

    def allows(self, token: int) -> bool:
        here = self._here
        if here.legal is not None:
            return token in here.legal
        if forced := self.forced(look=False):
            return token == forced[0]  # the matcher would take other spellings of it, too
        return not self.finished() and bool(self._matcher_here().validate_tokens([token]))

    def _consume(self, tokens: Sequence[int]) -> None:
        matcher = self._matcher_here()
        if not matcher.consume_tokens(list(tokens)):
            raise GrammarError(matcher.get_error())
        for token in tokens:
            after = self._here.after[token] = _Position(self._here, token)
            self._here = after
        self._matched = self._here

    def _matcher_here(self) -> LLMatcher:
        """Return the matcher, moved to where the text stands."""
        if self._matched is self._here:
            return self._matcher
        back, ahead = 0, list[int]()
        of_text, of_matcher = self._here, self._matched
        while of_text is not of_matcher:
            if of_text.depth > of_matcher.depth:
                ahead.append(of_text.token)
                of_text = _before(of_text)
            else:
                back += 1
                of_matcher = _before(of_matcher)
        if back and not self._matcher.rollback(back):
            raise GrammarError(self._matcher.get_error())
        if ahead and not self._matcher.consume_tokens(ahead[::-1]):
            raise GrammarError(self._matcher.get_error())
        self._matched = self._here
        return self._matcher

    def _read_forced(self, matcher: LLMatcher) -> list[int]:
        forced: list[int] = matcher.compute_ff_tokens()
        if not self._special.isdisjoint(forced):  # the words "<|im_end|>" are read as that token, and then refused
            forced = self._spelt(matcher.compute_ff_bytes())
        return forced

    def _spelt(self, forced: bytes) -> list[int]:
        """Return tokens that spell what must come next.

        None in the middle of a character, which no text begins with: the mask says how it goes on.
        """
        if forced[:1] and _GOES_ON[0] <= forced[0] <= _GOES_ON[1]:
            return []
        spelt: list[int] = self._tokenizer.greedy_tokenize(forced.decode(errors="ignore"))
        return spelt

    def _read_mask(self, matcher: LLMatcher) -> NDArray[np.int64]:
        if matcher.is_stopped():
            return _NOTHING
        matcher.unsafe_compute_mask_ptr(self._mask_address, self._mask.nbytes)
        if matcher.is_error():  # each of many equal words may be the one that goes on: more ways than it follows
            raise GrammarError(matcher.get_error())
        # At most grammar positions few of the vocabulary's 32-token words have a legal token: only those are unpacked.
        (words,) = self._mask.nonzero()
        bits = np.unpackbits(self._mask[words].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
        rows, columns = bits.nonzero()
        legal: NDArray[np.int64] = words[rows] * _BITS_A_WORD + columns
        return _NOTHING if legal.size == 1 and legal[0] == self._eos_token else legal


def _before(position: _Position) -> _Position:
    assert position.before is not None, "it is not the first"
    return position.before
