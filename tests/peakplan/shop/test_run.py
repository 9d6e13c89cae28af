"""What `learn` makes of catalogues: of one with known faults, of a damaged one, and of one without categories.

Of what the damage takes, at least nine tenths come back. Where titles tell the kinds, searches find no less than raw
words do.
"""

import csv
import json
import random
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from peakplan_client.catalogue import read

from peakplan.shop.evaluating import RAW, evaluate
from peakplan.shop.inducing import induced, kind_of
from peakplan.shop.judgements import Asked, Judgements
from peakplan.shop.run import Done, Task, learn
from peakplan.shop.texts import key, measure, tokens
from service.planner.text import COLORS, MATERIALS
from service.settings.choices import SHIPPED_MODEL
from tests.peakplan.shop.test_learn import catalogue, write_lines


def faulty() -> list[dict[str, Any]]:
    rows = catalogue()
    rows[3] = rows[3] | {"colour": "Geren"}
    rows[7] = rows[7] | {"colour": "GREEN"}
    rows[11] = rows[11] | {"price": "$99000"}
    rows[12] = rows[12] | {"price": "0"}
    rows[20] = rows[19] | {"sku": "P20"}
    rows[30] = rows[30] | {"brand": None}
    rows[40] = rows[40] | {"category": None}
    rows[50] = rows[50] | {"category": None, "title": "XQ-77", "brand": "Zorvex"}
    return rows


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("faulty")
    return learn(Task(write_lines(folder / "p.jsonl", faulty()), folder / "mine", {}, quiet=True))


def test_the_faults_are_counted_and_shown(done: Done) -> None:
    found = done.summary["findings"]
    assert found["suspicious price"] == 2
    assert found["duplicate"] == 1
    assert found["no category"] == 2
    assert found["no plan can find"] == 1
    assert found["written otherwise"] == 2
    page = (done.output / "report.html").read_text(encoding="utf-8")
    assert "P50: XQ-77" in page
    assert "Geren" in page
    assert page.count("<meter") > 2
    assert "What to mend first" in page
    assert "<script" not in page
    assert done.summary["score"] < 100


def test_what_is_missing_and_can_be_told_is_written_with_its_confidence(done: Done) -> None:
    rows = [json.loads(line) for line in (done.output / "enriched.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {(row["id"], row["field"]): row for row in rows}
    assert found["P3", "colour"]["value"] == "Green"
    assert (found["P7", "colour"]["was"], found["P7", "colour"]["from"]) == ("GREEN", "spelling")
    brand = found["P30", "brand"]
    assert brand["value"] == faulty()[30]["title"].split()[0]
    assert brand["confidence"] > 0.9
    assert found["P40", "category"]["value"] == "Kitchen > Kettles"
    assert all(0 <= row["confidence"] <= 1 for row in rows)


def test_a_catalogue_without_faults_scores_full(tmp_path: Path) -> None:
    whole = learn(Task(write_lines(tmp_path / "p.jsonl", catalogue()), tmp_path / "mine", {}, quiet=True))
    assert whole.summary["score"] == 100
    assert whole.summary["findings"] == {}


_SYLLABLES = "ka lo mi ter van dor sen qui pra bel nox ari tum fel gra zon".split()
_SAME_SIZE = 0.03
Taken = dict[tuple[str, str], str]  # what was there, by product and field


def damaged(rng: random.Random) -> tuple[list[dict[str, Any]], Taken]:
    """Return the sample catalogue with a damage, and what it took.

    The catalogue first gets what it lacks: an invented brand, a colour and a material of its names, a height. Then a
    third of its products lose their categories, another third have their brand in the title alone, a tenth of the
    colours and materials are misspelt, and a third of the heights are in other units.
    """
    brands = ["".join(rng.choices(_SYLLABLES, k=3)).capitalize() for _ in range(80)]
    rows, taken = [], Taken()
    for product in read():
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


SHOP = Path(__file__).with_name("no_categories.tsv")  # title, price, the searches that it is right for
NO_NAMES = {"bolt x", "xl", "xxl", "tan", "black", "inch", "cm", "usb", "windows", "ram"}


def test_no_search_finds_less_than_raw_words_where_titles_tell_kinds(tmp_path: Path) -> None:
    with SHOP.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    judgements = Judgements()
    lines = []
    for number, (title, price, searches) in enumerate(rows):
        made = {"sku": f"P{number}", "name": title, "brand": title.split()[0], "price": float(price)}
        lines.append(json.dumps(made) + "\n")
        for search in filter(None, searches.split(", ")):
            judgements.questions[search] = Asked(search)
            judgements.add(search, f"P{number}", 1)
    source = tmp_path / "p.jsonl"
    source.write_text("".join(lines), encoding="utf-8")
    done = learn(Task(source, tmp_path / "shop", {}, quiet=True))
    found = evaluate(judgements, source, done.output, tmp_path, model_dir=SHIPPED_MODEL, with_model=False)
    raw, learnt = (found.scores[way]["nDCG@10"] for way in (RAW, "reader with the shop folder"))

    assert len(raw) == 20
    assert {search: score for search, score in learnt.items() if score < raw[search] - 1e-3} == {}
    assert sum(learnt.values()) >= sum(raw.values()) + 0.03 * len(raw)
    assert learnt["laptop"] > 0.7
    assert learnt["mouse"] == pytest.approx(1)
    values = yaml.safe_load((done.output / "mapping.yaml").read_text(encoding="utf-8"))["facets"]["type"]["values"]
    assert {"Notebook", "Mouse", "Mouse pad", "Keyboard"} <= values.keys()
    assert not NO_NAMES & {name.lower() for value, names in values.items() for name in (value, *names)}


@pytest.mark.parametrize(
    ("titles", "kinds"),
    [
        (["Hex Bolt M8 x 30 Tan", "Hex Bolt M10 x 50", "Wood Screw 4 x 40 mm", "Wall Plug 8 mm"],
         ["Bolt", "Bolt", "Screw", "Plug"]),
        (["Tapis en laine", "Tapis de bain", "Tapis rond", *(f"Chaise {n}" for n in "abc"), "Lampe"],
         ["Tapis", "Tapis", "Tapis", "Chaise"]),
        (["Notebook 8GB RAM Windows 11", "Notebook Bag", "Notebook Black", "USB 3.0 Hub", "Leather Bag"],
         ["Notebook", "Bag", "Notebook", "Hub", "Bag"]),
    ],
)  # fmt: skip
def test_a_title_says_its_thing_and_no_size_colour_or_part(titles: list[str], kinds: list[str | None]) -> None:
    found = {name: kind.titles for name, kind in induced(titles, ()).items()}
    assert [kind_of(title, found) for title in titles][: len(kinds)] == kinds
