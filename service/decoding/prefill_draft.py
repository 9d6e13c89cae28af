"""How answers usually begin: a draft for the forward that reads the prompt.

Heads have no hidden state to guess from yet, but answers under one grammar begin alike. The commonest beginnings ride
along with the prompt at the cost of a few rows; what the model would not have chosen is dropped like any wrong guess.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from service.decoding.constraint import Constraint
from service.decoding.proposer import Budget, Guess, Proposer
from service.decoding.tree import TokenTree


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


@dataclass(frozen=True, slots=True)
class PrefillProposer:
    """Hangs `draft` from the prompt, and lets another proposer draft every forward after it.

    A grammar that is still being compiled is not waited for: what it forbids, verification drops. For Medusa heads, or
    for nothing at all, to go on from: a draft model reads the prompt itself, and drafts there.
    """

    draft: PrefillDraft
    then: Proposer

    @property
    def draft_forwards(self) -> int:
        return self.then.draft_forwards

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        if tree.start:
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
