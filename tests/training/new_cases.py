"""Take out of new files of cases what is nearly a text that something is trained on.

python -m tests.training.new_cases rehearsal/bench/cases/writer_25.jsonl
python -m tests.training.judged                     # and then note what judges now
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.training.judged import Likeness
from tests.training.test_asked import TEXTS
from tests.training.test_written import written_texts
from training.data.cases import WORTH_CASES, read_cases
from training.data.conversations import conversations
from training.needs import read_needs


def trained_texts() -> Iterator[str]:
    """Yield every text that a model, a head or a scorer learns from."""
    yield from TEXTS
    yield from written_texts()
    yield from (need.text for need in read_needs())
    for _, conversation in conversations("train"):
        says = [turn.say for turn in conversation.turns]
        yield from (*says, *(" ".join(says[: at + 1]) for at in range(1, len(says))))
    for case in read_cases(WORTH_CASES):
        yield from (case.question.text, " ".join(case.question.utterances))


def main() -> None:
    trained = Likeness(trained_texts())
    for path in map(Path, sys.argv[1:]):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        texts = [(row["query"], " ".join([*row.get("history", ()), row["query"]])) for row in rows]
        kept = [line for line, said in zip(lines, texts, strict=True) if not any(map(trained.is_near, said))]
        path.write_text("\n".join(kept) + "\n", encoding="utf-8")
        print(f"{path}: {len(lines) - len(kept)} of {len(lines)} taken out")


if __name__ == "__main__":
    main()
