"""The mix of questions: dev questions, some of them far more often than others, as in search traffic.

Search traffic has a Zipf head: the question of rank r is asked in proportion to r ** -s. The value of s decides how
effective a cache can be, so every result names it, and the number of distinct questions.
"""

import json
import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from rehearsal.bench.questions import DATA, dev_questions, has_dev_data, own_questions
from service.planner.question import Question

DISTINCT = 5000
ZIPF = 0.8  # the exponent of how much oftener some questions are asked than others


def questions(distinct: int, data: Path = DATA, seed: int = 1) -> list[Question]:
    """Return up to `distinct` questions in random order of rank: dev rows where the data folder is, else our own."""
    rows = dev_questions(distinct, data, seed) if has_dev_data(data) else own_questions()
    unique = list({(question.utterances): question for question in rows}.values())
    random.Random(seed).shuffle(unique)
    return unique[:distinct]


def draw(ranked: Sequence[Question], count: int, zipf: float, seed: int = 1) -> list[Question]:
    """Draw `count` questions, the first ranks most often. `zipf` 0 draws all equally often."""
    weights = list(accumulate((rank + 1) ** -zipf for rank in range(len(ranked))))
    return random.Random(seed).choices(ranked, cum_weights=weights, k=count)


def body(question: Question, deadline_ms: int) -> bytes:
    """Return the JSON body of POST /plan."""
    fields: dict[str, object] = {"query": question.text, "deadline_ms": deadline_ms}
    if len(question.utterances) > 1:
        fields["history"] = list(question.utterances[:-1])
    if question.locale:
        fields["locale"] = question.locale
    return json.dumps(fields).encode()
