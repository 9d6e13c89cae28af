"""Of what a damage takes from the sample catalogue, at least nine tenths come back by `peakplan shop learn`.

The catalogue gets what it lacks, by a seed: an invented brand, a colour and a material of its names, a height. Then
a third of its products lose their categories, another third have their brand in the title alone, a tenth of the colours
and materials are misspelt, and a third of the heights are in other units.
"""

import json
import random
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peakplan_client import catalogue

from peakplan.shop.run import Task, learn
from peakplan.shop.texts import key, measure, tokens
from service.planner.text import COLORS, MATERIALS

_SYLLABLES = "ka lo mi ter van dor sen qui pra bel nox ari tum fel gra zon".split()
_SAME_SIZE = 0.03
Taken = dict[tuple[str, str], str]  # what was there, by product and field


def damaged(rng: random.Random) -> tuple[list[dict[str, Any]], Taken]:
    brands = ["".join(rng.choices(_SYLLABLES, k=3)).capitalize() for _ in range(80)]
    rows, taken = [], Taken()
    for product in catalogue.read():
        row: dict[str, Any] = {**asdict(product), "brand": rng.choice(brands), "height": f"{5 * rng.randint(2, 12)} cm"}
        for field, known in (("color", COLORS), ("material", MATERIALS)):
            word = row[field] = next((word for word in tokens(product.name) if word in known), None)
            if word and len(word) > 4 and rng.random() < 0.1:
                taken[product.id, field] = word
                row[field] = misspelt(word, rng)
        kind = rng.randrange(3)
        if kind == 0:
            taken[product.id, "category"] = f"{row['category']} > {row['style']}"
            row |= {"category": None, "style": None}
        elif kind == 1:
            taken[product.id, "brand"] = row["brand"]
            row |= {"name": f"{row['brand']} {row['name']}", "brand": None}
        if rng.random() < 1 / 3:
            taken[product.id, "height"] = row["height"]
            row["height"] = f"{float(row['height'].split()[0]) / 2.54:.1f} in"
        rows.append(row)
    return rows, taken


def misspelt(word: str, rng: random.Random) -> str:
    """Return a word with two neighbours swapped, or with one letter too few or too many, inside it."""
    at = rng.randrange(1, len(word) - 2)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return rng.choice([swapped, word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]])


def is_same(found: str, value: str) -> bool:
    size, wanted = measure(found), measure(value)
    if size and wanted:
        return size[0] == wanted[0] and abs(size[1] - wanted[1]) <= _SAME_SIZE * wanted[1]
    return re.sub(r"\W", "", key(found)) == re.sub(r"\W", "", key(value))


def test_nine_tenths_of_a_damage_come_back(tmp_path: Path) -> None:
    rows, taken = damaged(random.Random(7))
    source = tmp_path / "damaged.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = learn(Task(source, tmp_path / "shop", {}, currency="USD", quiet=True))
    lines = (done.output / "enriched.jsonl").read_text(encoding="utf-8").splitlines()
    enriched = {(row["id"], row["field"].replace("style", "category")): row["value"] for row in map(json.loads, lines)}

    total = Counter(field for _, field in taken)
    right = Counter(at[1] for at, value in taken.items() if is_same(enriched.get(at, ""), value))
    assert set(total) == {"category", "brand", "color", "material", "height"}
    assert right.total() >= 0.9 * total.total()
    assert right["category"] >= 0.8 * total["category"]
