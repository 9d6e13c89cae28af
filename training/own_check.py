"""The door of `peakplan finetune`: its help, the check of the rows, and how long a run takes, all without PyTorch.

Parts that `make train` makes, too, cost what the shipped model's took, by its `training.json`; the rest goes with the
time that a plan takes.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from service.planner.vocabulary import Vocabulary, VocabularyError
from service.settings.choices import SHIPPED_MODEL
from training.data.own_rows import OwnRows, RowsError, read_own_rows

LEAST_REHEARSED = 1000  # questions of ours, with --rehearsal 1
JUDGED = 1000  # questions of ours of either kind that bound what the reader may plan
# Processor time of one core of an AMD EPYC with avx512vnni, which made the shipped model, too, in seconds.
PLAN_SECONDS = 0.04  # a greedy plan
_EXAMPLE_SECONDS = 0.06  # a question of a pass of the adapter's
_MEDUSA_SHARE = 0.65  # of a greedy plan's time
KIND_HEAD_TEXTS = 2  # that a kind head learns from, for each of the run's questions
_READ_SECONDS = 0.015  # a text of the kind head's, of which only the prompt is read
_STARTING_SECONDS = 90.0  # processes that import PyTorch and load the model, all in all
# What the shipped model's recorded minutes are of (training/settings.py, tests/training/test_own_rows.py).
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
        heads = recorded["medusa_heads.safetensors"] / RECORDED_QUESTIONS
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


_DESCRIPTION = """Go on from a model with rows of one's own (docs/own-data.md), measured before and after.

The adapter learns from the rows and from a rehearsal of our own material; heads, prefill head and tree are
then made anew for it. A tenth of the rows, by a hash of their words, is held out: a model that is worse on them is not
written. Restartable, like `make train`; the output folder appears whole or not at all. --check takes seconds, and says
how long the run would take.
"""
_SHOWN = 10  # lines that a message lists


def parser() -> argparse.ArgumentParser:
    """Return the command line of `peakplan finetune`."""
    made = argparse.ArgumentParser(
        prog="peakplan finetune", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("rows", type=Path, help="JSON lines: docs/own-data.md has one of each kind")
    made.add_argument("--from", dest="start", type=Path, required=True, help="model folder to go on from")
    made.add_argument("--output", type=Path, help="model folder to write; there must be none yet")
    made.add_argument("--check", action="store_true", help="only check the rows, and estimate the time")
    made.add_argument("--json", action="store_true", help="print one line of JSON; progress goes to standard error")
    made.add_argument("--work", type=Path, help="checkpoints; runs/<name of the output> unless given")
    made.add_argument("--vocabulary", type=Path, help="a vocabulary.json of your own; that of --from unless given")
    made.add_argument("--epochs", type=int, default=3, help="passes over the rows")
    made.add_argument("--rehearsal", type=float, default=1.0, help="questions of ours for each row of yours")
    made.add_argument("--questions", type=int, default=4000, help="whose plans the new heads learn from")
    made.add_argument("--measured", type=int, default=300, help="held-out rows, and questions of ours, at most")
    made.add_argument("--seed", type=int, default=7)
    made.add_argument("--accept-worse", action="store_true", help="write the model even if it measures worse")
    return made


def checked(path: Path, vocabulary_folder: Path) -> tuple[Vocabulary, OwnRows]:
    """Read a file of rows, and print what will be learnt of it. Raises RowsError, VocabularyError."""
    vocabulary = Vocabulary.load(vocabulary_folder)
    rows = read_own_rows(path, vocabulary)
    print(f"{path}: {len(rows.train)} rows to train on, {len(rows.dev)} held out", flush=True)
    if rows.repeated:
        more = ", ..." if len(rows.repeated) > _SHOWN else ""
        lines = ", ".join(map(str, rows.repeated[:_SHOWN])) + more
        print(f"{path}: {len(rows.repeated)} more repeat an earlier row and count once: line {lines}", flush=True)
    return vocabulary, rows


def work(rows: OwnRows, given: argparse.Namespace) -> Work:
    """Return what a run with these options has to do."""
    return Work(len(rows.train), len(rows.dev), given.epochs, given.rehearsal, given.questions, given.measured)


def main() -> None:
    """Check the rows alone."""
    given = parser().parse_args()
    try:
        vocabulary = (given.vocabulary or given.start).resolve()
        if given.json:
            rows = read_own_rows(given.rows, Vocabulary.load(vocabulary))
            found = {"train": len(rows.train), "held_out": len(rows.dev), "repeated_lines": list(rows.repeated)}
            minutes = round(work(rows, given).minutes(cores()), 1)
            print(json.dumps({"rows": str(given.rows), **found, "minutes": minutes}))
        else:
            print(told(work(checked(given.rows, vocabulary)[1], given)))
    except (RowsError, VocabularyError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
