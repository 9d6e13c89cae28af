"""What of a reproducible damage comes back by `peakplan shop learn`: `python -m rehearsal.bench.shop_damage`.

The sample catalogue gets what it lacks, by a seed: an invented brand, a colour and a material (those that a name says),
a height. Then a third of its products lose their categories, another third have their brand in the title alone, a tenth
of the colours and materials are misspelt, and a third of the heights are in other units. What enriched.jsonl says of a
damaged field is compared with what was there.
"""

import argparse
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peakplan_client import catalogue
from peakplan_client.catalogue import Product

from peakplan.shop.run import Task, learn
from peakplan.shop.texts import key, measure, tokens
from service.planner.fallback.reading.en.lists import COLORS, MATERIALS

SEED = 7
_BRANDS = 80
_SYLLABLES = "ka lo mi ter van dor sen qui pra bel nox ari tum fel gra zon".split()
_SAME_SIZE = 0.03
Rows = list[dict[str, Any]]


def whole(products: Sequence[Product], seed: int = SEED) -> Rows:
    """Return the catalogue with brands, colours, materials and heights."""
    rng = random.Random(seed)
    names = sorted({"".join(rng.choices(_SYLLABLES, k=3)).capitalize() for _ in range(_BRANDS)})
    rows = []
    for each in products:
        row = {**asdict(each), "brand": rng.choice(names), "height": f"{5 * rng.randint(2, 12)} cm"}
        said = tokens(each.name)
        row["color"] = next((word for word in said if word in COLORS), None)
        row["material"] = next((word for word in said if word in MATERIALS), None)
        rows.append(row)
    return rows


def damaged(rows: Rows, seed: int = SEED) -> tuple[Rows, list[tuple[str, str, Any]]]:
    """Return the rows after the damage, and what it took: id, field and what was there."""
    rng = random.Random(seed + 1)
    taken: list[tuple[str, str, Any]] = []
    after = []
    for row in rows:
        row = dict(row)
        kind = rng.randrange(3)
        if kind == 0:
            taken.append((row["id"], "category", f"{row['category']} > {row['style']}"))
            row |= {"category": None, "style": None}
        elif kind == 1:
            taken.append((row["id"], "brand", row["brand"]))
            row |= {"name": f"{row['brand']} {row['name']}", "brand": None}
        for field in ("color", "material"):
            if row[field] and len(row[field]) > 4 and rng.random() < 0.1:
                taken.append((row["id"], field, row[field]))
                row[field] = misspelt(row[field], rng)
        if rng.random() < 1 / 3:
            taken.append((row["id"], "height", row["height"]))
            row["height"] = f"{float(row['height'].split()[0]) / 2.54:.1f} in"
        after.append(row)
    return after, taken


def misspelt(word: str, rng: random.Random) -> str:
    """Return a word with two neighbours swapped, or with one letter too few or too many, inside it."""
    at = rng.randrange(1, len(word) - 2)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return rng.choice([swapped, word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]])


def recovered(taken: list[tuple[str, str, Any]], enriched: Rows) -> tuple[Counter[str], Counter[str]]:
    """Return by field how much came back right, and how much was taken."""
    found: dict[tuple[str, str], str] = {}
    for row in enriched:
        name = "category" if row["field"] == "style" else row["field"]
        found[row["id"], name] = row["value"]
    right: Counter[str] = Counter()
    for id_, field, value in taken:
        right[field] += _is_same(found.get((id_, field), ""), value)
    return right, Counter(field for _, field, _ in taken)


def _is_same(found: str, value: str) -> bool:
    size, wanted = measure(found), measure(value)
    if size and wanted:
        return size[0] == wanted[0] and abs(size[1] - wanted[1]) <= _SAME_SIZE * wanted[1]
    return re.sub(r"\W", "", key(found)) == re.sub(r"\W", "", key(value))


def run(products: Sequence[Product]) -> tuple[Counter[str], Counter[str]]:
    """Damage, learn, compare."""
    rows, taken = damaged(whole(products))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "damaged.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        done = learn(Task(source, Path(folder) / "shop", {}, currency="USD", quiet=True))
        enriched = (done.output / "enriched.jsonl").read_text(encoding="utf-8").splitlines()
    return recovered(taken, [json.loads(line) for line in enriched])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    right, total = run(list(catalogue.read()))
    for field, count in total.items():
        print(f"{field}: {right[field]} of {count} ({right[field] / count:.3f})")
    print(f"all: {right.total()} of {total.total()} ({right.total() / total.total():.3f})")


if __name__ == "__main__":
    main()
