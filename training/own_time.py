"""How long `peakplan finetune` will take, said before it begins: its pieces of work by what each is known to cost.

Parts that `make train` makes, too, cost what the shipped model's took, by its `training.json`; the rest goes with the
time that a plan takes. Without PyTorch, so that `--check` can tell.
"""

import json
import os
from dataclasses import dataclass

from service.settings.choices import SHIPPED_MODEL

LEAST_REHEARSED = 1000  # questions of ours, with --rehearsal 1
JUDGED = 1000  # questions of ours of either kind that bound what rules may plan
# Processor time of one core of an AMD EPYC with avx512vnni, which made the shipped model, too, in seconds.
PLAN_SECONDS = 0.04  # a greedy plan
_EXAMPLE_SECONDS = 0.06  # a question of a pass of the adapter's
_MEDUSA_SHARE = 0.65  # of a greedy plan's time
KIND_HEAD_TEXTS = 2  # that a kind head learns from, for each of the run's questions
_READ_SECONDS = 0.015  # a text of the kind head's, of which only the prompt is read
_STARTING_SECONDS = 90.0  # processes that import PyTorch and load the model, all in all
# What the shipped model's recorded minutes are of (training/settings.py, tests/training/test_own_time.py).
RECORDED_CORES, RECORDED_QUESTIONS = 2, 5000


@dataclass(frozen=True, slots=True)
class Work:
    """What a run has to do: rows to train on and held out, and the options that decide on the rest."""

    rows: int
    held_out: int
    epochs: int
    rehearsal: float
    questions: int
    measured: int

    @property
    def rehearsed(self) -> int:
        """Questions of ours in each pass."""
        return round(self.rehearsal * max(self.rows, LEAST_REHEARSED))

    def minutes(self, cores: int, plan_seconds: float = PLAN_SECONDS) -> float:
        """Return how long it takes where a greedy plan takes so long."""
        text = (SHIPPED_MODEL / "training.json").read_text(encoding="utf-8")
        recorded: dict[str, float] = json.loads(text)["minutes"]
        of_plans = ("medusa_heads.safetensors", "prefill_head.safetensors", "prompt_tagger.safetensors")
        heads = sum(recorded[part] for part in of_plans) / RECORDED_QUESTIONS
        shared = heads * self.questions * RECORDED_CORES * 60
        shared += _EXAMPLE_SECONDS * self.epochs * (self.rows + self.rehearsed)
        shared += _READ_SECONDS * KIND_HEAD_TEXTS * self.questions
        shared += _MEDUSA_SHARE * PLAN_SECONDS * 2 * JUDGED
        judged = min(self.held_out, self.measured) + self.measured
        alone = recorded["medusa_tree.json"] * 60 + (self.rows + 2 * judged) * PLAN_SECONDS + _STARTING_SECONDS
        return float((shared / cores + alone) * plan_seconds / PLAN_SECONDS / 60)


def cores() -> int:
    """Return how many processor cores a run uses."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def told(work: Work, plan_seconds: float | None = None) -> str:
    """Return the estimate as a line: with a plan's time here, or as of the machine that made the shipped model."""
    count = cores()
    on = f"{count} core{'s' * (count > 1)}"
    if plan_seconds is None:
        minutes, where = work.minutes(count), f"{on} like those that made the shipped model, with nothing else to do"
    else:
        minutes = work.minutes(count, plan_seconds)
        where = f"{on} of this machine, by the {1000 * plan_seconds:.0f} ms that a plan takes here now"
    return f"time: some {max(1, round(minutes))} minutes on {where}"
