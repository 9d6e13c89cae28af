"""Drafts copied from the prompt: where the text repeats its words, what followed them there may follow here.

Prompt lookup (Yang et al., "Inference with Reference", arXiv 2304.04487) as rows below another proposer's draft: a leaf
that the prompt has, too, is continued as the prompt goes on. A wrong row costs nothing where a forward computes all of
its rows anyway, as a compiled graph does.
"""

from collections.abc import Sequence
from concurrent.futures import Future

from service.decoding.constraint import Constraint, known
from service.decoding.proposer import Budget, Guess, Proposer
from service.decoding.tree import NO_NODE, TokenTree, path_to

LONGEST = 8  # nodes of a copy
MOST_LEAVES = 8  # that are continued in one forward


class PromptCopyProposer:
    """Lets another proposer draft, and continues its leaves with what follows their tokens in the prompt."""

    def __init__(self, prompt: Sequence[int], then: Proposer, longest: int = LONGEST) -> None:
        """Copy at most `longest` nodes from a leaf on."""
        self._prompt = list(prompt)
        self._then = then
        self._longest = longest
        self._after: dict[int, list[int]] = {}
        for position, token in enumerate(self._prompt[:-1]):
            self._after.setdefault(token, []).append(position + 1)

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        self._then.propose(tree, grammar, budget)
        if tree.first:  # the prompt is being read; the text that could repeat it has not begun
            return
        constraint = known(grammar)
        parents = {parent for parent in tree.parents[tree.run :] if parent != NO_NODE}
        leaves = [node for node in range(tree.root, len(tree.tokens)) if node not in parents]
        for leaf in leaves[:MOST_LEAVES]:
            self._continue(tree, constraint, budget, leaf)

    def _continue(self, tree: TokenTree, constraint: Constraint, budget: Budget, leaf: int) -> None:
        """Add the prompt's tokens after the leaf's. The constraint stands at the root, and does again afterwards."""
        position = self._position_after(tree, leaf)
        if position is None or budget.below(tree, leaf) <= 0:
            return
        drafted = [tree.tokens[node] for node in path_to(leaf, tree.parents) if node > tree.root]
        constraint.accept(drafted)
        try:
            if not constraint.finished():
                self._copy(tree, constraint, budget, leaf, position, self._longest)
        finally:
            constraint.rollback(len(drafted))

    def _copy(
        self, tree: TokenTree, constraint: Constraint, budget: Budget, node: int, position: int, left: int
    ) -> None:
        if left <= 0 or position >= len(self._prompt) or budget.below(tree, node) <= 0:
            return
        token = self._prompt[position]
        if tree.child(node, token) is not None or not constraint.allows(token):
            return
        first = len(tree.tokens)
        with Guess(tree, constraint, budget, node, token) as last:
            if last is not None:
                # What the grammar forced after it is a copy only as long as the prompt goes on alike.
                added = tree.tokens[first:]
                if added == self._prompt[position : position + len(added)]:
                    self._copy(tree, constraint, budget, last, position + len(added), left - len(added))

    def _position_after(self, tree: TokenTree, leaf: int) -> int | None:
        """Return where the prompt goes on after the leaf's token: after the one before it too, where that is there."""
        positions = self._after.get(tree.tokens[leaf])
        if not positions:
            return None
        parent = tree.parents[leaf]
        before = tree.tokens[parent] if parent != NO_NODE else None
        return next((each for each in positions if each > 1 and self._prompt[each - 2] == before), positions[0])
