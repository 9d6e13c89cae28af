"""What each step read, drafted and accepted, for people to look at."""

from dataclasses import dataclass
from typing import Literal

from service.decoding.draft import TokenTree
from service.decoding.tree import NO_NODE
from service.decoding.verification import Verdict

NodeStatus = Literal["accepted", "rejected", "forced", "sampled"]


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """A node that a forward read: `parent` is its index in the step (-1: none), `depth` counts from the first node.

    "sampled": the model's own choice at the end of the step before. "forced": the grammar left no other. "accepted" and
    "rejected": drafted, and the model agreed or not (what was forced after a rejected guess is rejected with it).
    """

    token: int
    parent: int
    depth: int
    status: NodeStatus


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One forward, the prompt's own tokens left out, and the tokens emitted thanks to it.

    Of its milliseconds some go to drafting and some to the forward itself; the rest verifies and keeps.
    """

    nodes: list[NodeTrace]
    emitted: list[int]
    milliseconds: float
    draft_milliseconds: float = 0.0
    forward_milliseconds: float = 0.0


def trace_nodes(nodes: TokenTree, verdict: Verdict, *, unseen: int, starts_sampled: bool) -> list[NodeTrace]:
    """The nodes after the first `unseen` ones (the prompt's)."""
    accepted = set(verdict.path)

    def status(node: int) -> NodeStatus:
        if node < nodes.run:
            return "sampled" if node == 0 and starts_sampled else "forced"
        if node not in accepted:
            return "rejected"
        return "forced" if node in nodes.forced else "accepted"

    return [
        NodeTrace(
            token=nodes.tokens[node],
            parent=max(nodes.parents[node] - unseen, NO_NODE),
            depth=nodes.depths[node] - unseen,
            status=status(node),
        )
        for node in range(unseen, len(nodes.tokens))
    ]
