"""A catalogue without categories: kinds from titles, and searches that find no less than raw words do."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from peakplan.shop.evaluating import RAW, evaluate
from peakplan.shop.inducing import induced, kind_of
from peakplan.shop.judgements import Asked, Judgements
from peakplan.shop.run import Task, learn
from service.settings.choices import SHIPPED_MODEL

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
