"""What every implementation of arms and drafts has to find: clients/experiment-vectors.json, for both clients' tests.

`python -m tests.clients.experiment_vectors` writes it anew; a change of it deals every running experiment anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from peakplan_client.experiments import assigned, bucket, interleave, is_unit

FILE = Path("clients/experiment-vectors.json")
_ARMS = (
    {"control": 50, "2": 30, "1": 20},  # names that an object of JavaScript would sort
    {"control": 1, "nobody": 0, "newer": 2},
    {"all": 100_000},
)
_SHOPPERS = ("browser-{}", "browser-{} ü👟", "{}" + "x" * 99, "")


def made() -> Iterator[dict[str, Any]]:
    """Yield what Python finds."""
    for number in range(40):
        draw, arms = Random(number), _ARMS[number % len(_ARMS)]
        a, b = (draw.sample([f"p{each}" for each in range(12)], draw.randrange(9)) for _ in "ab")
        shopper, length = _SHOPPERS[number % len(_SHOPPERS)].format(number), draw.randrange(12)
        experiment, drafted = ("autumn", "Ørsted:2")[number % 2], interleave(a, b, length=length, seed=shopper)
        chosen = draw.sample(a, len(a) // 2)
        yield {
            "experiment": experiment, "shopper": shopper, "header": is_unit(shopper), "arms": list(arms.items()),
            "bucket": bucket(experiment, shopper), "arm": assigned(experiment, arms, shopper),
            "a": a, "b": b, "length": length, "products": list(drafted.products), "teams": list(drafted.teams),
            "chosen": chosen, "credit": drafted.credit(chosen),
        }  # fmt: skip


def text() -> str:
    """Return the file's content, one case a line."""
    return "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in made()) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
