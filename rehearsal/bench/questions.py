"""The questions of benchmarks and lossless tests: real dev queries where the data folder is, else our own."""

import itertools
import json
import os
import random
from pathlib import Path

from service.planner.question import Question

DATA = Path(os.environ.get("PEAKPLAN_DATA") or Path(__file__).parents[3] / "shared" / "data")
OWN_QUESTIONS = Path(__file__).with_name("questions.jsonl")
# Shares of a sample by origin of the dev sets; the most frequent kind of shop search comes first.
_SHARES = {
    "queryner": 0.4, "webshop": 0.12, "sentence": 0.1, "pqa": 0.1, "price": 0.08, "taxonomy": 0.06,
    "conversation": 0.06, "bitext": 0.03, "slip": 0.02, "clinc": 0.01, "keywords": 0.01, "support": 0.01,
}  # fmt: skip


def has_dev_data(data: Path = DATA) -> bool:
    return (data / "queryner_dev.jsonl.gz").is_file()


def dev_questions(count: int, data: Path = DATA, seed: int = 1) -> list[Question]:
    """Return a seeded sample of dev questions, in the proportions above."""
    from training.data.mix import dev_sets  # reads prices by text2num, which the Neuron SDK's Python lacks

    rng = random.Random(seed)
    sets = dev_sets(data)
    chosen: list[Question] = []
    for origin, share in _SHARES.items():
        examples = sets[origin]
        wanted = min(len(examples), -int(-share * count // 1))
        chosen += [example.question() for example in rng.sample(examples, wanted)]
    rng.shuffle(chosen)
    return chosen[:count]


def own_questions(count: int | None = None) -> list[Question]:
    """Return our hand-written questions, repeated as often as needed."""
    rows = [json.loads(line) for line in OWN_QUESTIONS.read_text(encoding="utf-8").splitlines()]
    questions = [Question.parse(row["query"], row.get("history", ())) for row in rows]
    return questions if count is None else list(itertools.islice(itertools.cycle(questions), count))
