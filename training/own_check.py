"""The door of `peakplan finetune`: its help, and the check of the rows, with no package that serving does not have."""

import argparse
import json
import sys
from pathlib import Path

from service.planner.vocabulary import Vocabulary, VocabularyError
from training.data.own_rows import OwnRows, RowsError, read_own_rows
from training.own_time import Work, cores, told

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
