"""How answers usually begin: a draft for the forward that reads the prompt.

Heads have no hidden state to guess from yet, but answers under one grammar begin alike. The commonest beginnings ride
along with the prompt at the cost of a few rows; what the model would not have chosen is dropped like any wrong guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PrefillDraft:
    """A trie: which tokens are tried next, each with what is tried after it."""

    branches: dict[int, "PrefillDraft"] = field(default_factory=dict)

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> "PrefillDraft":
        """The trie of some token sequences and all their prefixes."""
        trie = cls()
        for sequence in sequences:
            node = trie
            for token in sequence:
                node = node.branches.setdefault(token, cls())
        return trie


NO_PREFILL_DRAFT = PrefillDraft()
