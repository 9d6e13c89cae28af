"""The result of a run as plain numbers: machine-readable, and the input of the report."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rehearsal.client import Sample

ALLOWANCE = 0.05  # after its deadline, within which every request must be answered
SHED = "shed"
FAILED = "failed"
_PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True, slots=True)
class Shown:
    """One answered or lost request: what answered it, and its times in seconds."""

    at: float
    latency: float
    deadline: float
    source: str
    model_seconds: float | None = None
    reason: str | None = None  # why the plan is the reader's
    queue_seconds: float | None = None  # waiting for a replica

    @property
    def is_good(self) -> bool:
        """Whether it is a plan by the model, fresh or cached, within its deadline."""
        return self.source in ("model", "cache") and self.latency <= self.deadline


def shown(sample: Sample) -> Shown:
    """Read a sample: the source that answered it, `shed` for 429 and 503, `failed` for anything else."""
    source, model_seconds, reason, queue_seconds = FAILED, None, None, None
    if sample.status == 200:
        answer = json.loads(sample.body)
        source, reason = answer["source"], answer.get("reason")
        if source == "model":
            model_seconds, queue_seconds = (answer["timing_ms"][part] / 1000 for part in ("model", "queue"))
    elif sample.status in (429, 503):
        source = SHED
    return Shown(sample.at, sample.latency, sample.deadline, source, model_seconds, reason, queue_seconds)


def summarise(samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """Summarise the run: rates per second, latencies in milliseconds, shares of 1."""
    answers = [shown(sample) for sample in samples]
    sources = Counter(answer.source for answer in answers)
    by_model = [answer for answer in answers if answer.source == "model"]
    lags = [sample.sent - sample.at for sample in samples]
    return {
        "planned_by_rule_share": round(sources["fallback"] / len(answers), 4),
        "planned_by_rule_because": dict(Counter(answer.reason for answer in answers if answer.reason)),
        "seconds": round(seconds, 3),
        "requests": len(samples),
        "offered_per_second": _rate(len(samples), seconds),
        "goodput_per_second": _rate(sum(answer.is_good for answer in answers), seconds),
        "model_plans_in_time_per_second": _rate(sum(a.is_good for a in by_model), seconds),
        "sources": dict(sorted(sources.items())),
        "source_shares": {source: round(count / len(answers), 4) for source, count in sorted(sources.items())},
        "latency_ms": latency_summary([answer.latency for answer in answers]),
        "latency_ms_by_source": {
            source: latency_summary([a.latency for a in answers if a.source == source]) for source in sorted(sources)
        },
        "model_answers_in_deadline": _share([a.latency <= a.deadline for a in by_model]),
        "answered_within_deadline_and_allowance": _share(
            [a.source != FAILED and a.latency <= a.deadline + ALLOWANCE for a in answers]
        ),
        "errors": dict(
            Counter(
                s.error or f"status {s.status}" for s, a in zip(samples, answers, strict=True) if a.source == FAILED
            )
        ),
        "generator_lag_ms": latency_summary(lags),
    }


def by_second(answers: Sequence[Shown], seconds: float) -> list[dict[str, Any]]:
    """Return, for each second of the run, the load offered, the sources that answered, and the latencies."""
    rows: list[list[Shown]] = [[] for _ in range(int(seconds) + 1)]
    for answer in answers:
        rows[min(int(answer.at), len(rows) - 1)].append(answer)
    return [
        {
            "second": second,
            "offered": len(row),
            "good": sum(answer.is_good for answer in row),
            "sources": dict(Counter(answer.source for answer in row)),
            "latency_ms": latency_summary([answer.latency for answer in row]),
        }
        for second, row in enumerate(rows)
        if row
    ]


def latency_summary(latencies: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds; empty for no latencies."""
    if not latencies:
        return {}
    ordered = sorted(latencies)
    found = {f"p{share:g}": ordered[min(int(len(ordered) * share / 100), len(ordered) - 1)] for share in _PERCENTILES}
    return {name: round(value * 1000, 2) for name, value in {**found, "max": ordered[-1]}.items()}


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2)


def _share(holds: Sequence[bool]) -> float | None:
    return round(sum(holds) / len(holds), 5) if holds else None
