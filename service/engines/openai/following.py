"""Follows text that another server streams through a grammar, piece by piece.

Greedy decoding under a grammar takes the best *legal* token. While a server without the grammar writes legal text, its
best token was legal and therefore the same one; where it leaves the grammar, only a server that is given the grammar
can go on.
"""

from service.decoding.constraint import GrammarCompiler, GrammarConstraint


class TextFollower:
    """The progress of a text through a grammar."""

    def __init__(self, compiler: GrammarCompiler, constraint: GrammarConstraint, eos_token: int) -> None:
        self._compiler = compiler
        self._constraint = constraint
        self._eos_token = eos_token
        self._accepted = bytearray()

    @property
    def text(self) -> str:
        """The text that the grammar has accepted."""
        return self._accepted.decode("utf-8", "replace")

    def follow(self, piece: str) -> bool:
        """Advance past a piece; return True once the grammar is finished, ignoring what the piece holds beyond.

        Raises GrammarError where the text leaves the grammar.
        """
        if not self._accepted and piece:
            piece = self._with_lost_space(piece)
        for token, spelling in self._compiler.spell(piece):
            if self._constraint.finished():
                break
            self._constraint.accept([token])
            self._accepted += spelling
        return self._constraint.finished()

    def may_end(self) -> bool:
        """Tell whether the text may end here: the grammar is finished, or allows an end of sequence."""
        return self._constraint.finished() or self._eos_token in self._constraint.legal()

    def _with_lost_space(self, piece: str) -> str:
        """Restore the leading space that a SentencePiece tokenizer drops from text decoded without its prompt."""
        if piece.startswith(" "):
            return piece
        first = self._compiler.spell(piece)[0][0]
        return piece if first in self._constraint.legal() else f" {piece}"
