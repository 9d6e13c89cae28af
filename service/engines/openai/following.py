"""Text that another program writes, followed through a grammar piece by piece.

Greedy decoding under a grammar takes the best *legal* token. While a server that knows no grammar writes legal text,
its best token was legal and so the same one; where it leaves the grammar, only a server that is given it can go on.
"""

from service.decoding.constraint import GrammarCompiler, GrammarConstraint


class TextFollower:
    """How far a text has come in a grammar."""

    def __init__(self, compiler: GrammarCompiler, constraint: GrammarConstraint, eos_token: int) -> None:
        self._compiler = compiler
        self._constraint = constraint
        self._eos_token = eos_token
        self._accepted = bytearray()

    @property
    def text(self) -> str:
        """What the grammar has taken."""
        return self._accepted.decode("utf-8", "replace")

    def follow(self, piece: str) -> bool:
        """Move on past a piece; True once the grammar is finished, and what the piece says beyond is ignored.

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
        """Whether the text may end here: the grammar is finished, or would let the model choose to stop."""
        return self._constraint.finished() or self._eos_token in self._constraint.legal()

    def _with_lost_space(self, piece: str) -> str:
        """A SentencePiece tokenizer drops the space before a text that it decodes without the prompt."""
        if piece.startswith(" "):
            return piece
        first = self._compiler.spell(piece)[0][0]
        return piece if first in self._constraint.legal() else f" {piece}"
