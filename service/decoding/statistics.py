"""The result and statistics of a generation, as plain picklable data; imports no model library."""

from dataclasses import dataclass, field
from typing import Literal

StopReason = Literal["finished", "length", "cancelled"]

# sampled    the model's own choice at the end of the previous step
# forced     the only token that the grammar allowed
# accepted   drafted, and the model agreed
# rejected   drafted, and it did not; or forced after a guess that was rejected
NodeStatus = Literal["accepted", "rejected", "forced", "sampled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One token of a step's tree. `parent` indexes the step's nodes (-1: none); `depth` counts from the first node."""

    token_text: str
    parent: int
    depth: int
    status: NodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One forward pass: the tree it verified, the token texts it emitted, and how long it took.

    `draft_milliseconds` and `forward_milliseconds` are parts of that; 0 where an engine does not tell them apart.
    """

    nodes: list[TraceNode]
    emitted: list[str]
    milliseconds: float
    draft_milliseconds: float = 0.0
    forward_milliseconds: float = 0.0


@dataclass(slots=True)
class Statistics:
    """Counts of one generation: `plan_tokens` = `decisions` + `forced_tokens`.

    `cached_tokens` of the `prompt_tokens` were not read, as a prefix cache had them.

    A decision was a choice among several tokens; a forced token had no rival. `forwards` includes the prefill.
    `accepted_per_step` has the number of tokens that each forward produced (those forced right after the prompt count
    for the first); they add up to `plan_tokens`, unless all is forced and nothing is forwarded.

    What vLLM calls spec_decode: `drafts` forwards verified drafted tokens, `draft_tokens` of them, without those that
    the grammar forced. `accepted_by_position` has the drafts whose first, second ... guess in a row was accepted.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    plan_tokens: int = 0
    forwards: int = 0
    decisions: int = 0
    forced_tokens: int = 0
    accepted_per_step: list[int] = field(default_factory=list)
    drafts: int = 0
    draft_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)

    def count_draft(self, guesses: int, accepted: int) -> None:
        """Count one forward's draft of so many guesses, of which so many in a row were accepted."""
        self.drafts += 1
        self.draft_tokens += guesses
        counts = self.accepted_by_position
        counts.extend([0] * (accepted - len(counts)))
        for position in range(accepted):
            counts[position] += 1


@dataclass(frozen=True, slots=True)
class Generation:
    """The decoded tokens with statistics; an end-of-sequence token only where the model, not the grammar, chose to end.

    `steps` has one for each forward, without the prompt's own tokens, where a trace was requested. `probabilities` are
    the model's of the tokens, among those that were legal; 1 for a forced one.
    """

    tokens: list[int]
    statistics: Statistics
    steps: list[TraceStep]
    stop_reason: StopReason
    probabilities: list[float]
