"""What a generation reports of itself, as plain data."""

from dataclasses import dataclass, field
from typing import Literal

from service.decoding.trace import StepTrace

StopReason = Literal["finished", "length", "cancelled"]


@dataclass(slots=True)
class Statistics:
    """`plan_tokens` = `decisions` + `forced_tokens`: each token was chosen among several or had no rival.

    `forwards` counts the prefill; `draft_forwards` are a draft model's, beside them. `accepted_per_step` has the tokens
    that each forward brought (those forced right after the prompt ride in the first); they add up to `plan_tokens`, but
    where all is forced and nothing is forwarded.
    """

    prompt_tokens: int = 0
    plan_tokens: int = 0
    forwards: int = 0
    decisions: int = 0
    forced_tokens: int = 0
    accepted_per_step: list[int] = field(default_factory=list)
    draft_forwards: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """The decoded tokens (an end-of-sequence token only where the grammar left the end to the model), and how."""

    tokens: list[int]
    statistics: Statistics
    steps: list[StepTrace]
    stop_reason: StopReason
