"""Prefill drafts: a draft of the usual answer beginnings for the forward that reads the prompt.

Heads have no hidden state to guess from yet, but answers under one grammar begin alike. The commonest beginnings are
added to the prompt's forward at the cost of a few rows; verification drops what the model would not have chosen, like
any wrong guess.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from service.decoding.constraint import Constraint
from service.decoding.proposer import Budget, Guess, Proposer
from service.decoding.tree import TokenTree


@dataclass(frozen=True)
class PrefillDraft:
    """A trie of drafted tokens, each with the tokens to try after it."""

    branches: dict[int, "PrefillDraft"] = field(default_factory=dict)

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> "PrefillDraft":
        """Build the trie of some token sequences and all their prefixes."""
        trie = cls()
        for sequence in sequences:
            node = trie
            for token in sequence:
                node = node.branches.setdefault(token, cls())
        return trie


NO_PREFILL_DRAFT = PrefillDraft()


@dataclass(frozen=True, slots=True)
class PrefillProposer:
    """Attaches `draft` to the prompt, and lets another proposer draft for every later forward.

    A grammar that is still being compiled is not waited for: what it forbids, verification drops. The other proposer is
    Medusa heads or none: a draft model reads the prompt itself and drafts during prefill.
    """

    draft: PrefillDraft
    then: Proposer

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        if not tree.first:
            self.then.propose(tree, grammar, budget)
        elif isinstance(grammar, Future):
            _expand_unchecked(tree, tree.root, self.draft, budget)
        else:
            _expand(tree, tree.root, self.draft, grammar, budget)


def _expand(tree: TokenTree, node: int, draft: PrefillDraft, constraint: Constraint, budget: Budget) -> None:
    if not draft.branches:
        return
    tree.legal[node] = constraint.legal()
    legal = set(tree.legal[node].tolist())
    for token, rest in draft.branches.items():
        if token in legal:
            with Guess(tree, constraint, budget, node, token) as last:
                if last is not None:
                    _expand(tree, last, rest, constraint, budget)


def _expand_unchecked(tree: TokenTree, node: int, draft: PrefillDraft, budget: Budget) -> None:
    for token, rest in draft.branches.items():
        if budget.below(tree, node) > 0:
            _expand_unchecked(tree, tree.add(node, token), rest, budget)
