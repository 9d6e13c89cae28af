"""`peakplan shop learn` as a person at a terminal uses it: formats, bad rows, questions, ends in the middle.

`peakplan shop check` then says what of a mapping fits nothing.
"""

import csv
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import CatalogueMapping

from peakplan.shop import run
from service.planner.shop.folder import ShopFolder
from service.planner.shop.kinds import Thing
from tests.processes import PATIENCE
from tests.server_process import REPOSITORY

BRANDS = ("Zorvex", "Kamilo", "Tandry", "Lumora")
KINDS = {"Kitchen": ("Kettle", "Toaster"), "Garden": ("Trowel", "Rake")}
COLOURS = ("Red", "Blue", "Green")


def catalogue(count: int = 240) -> list[dict[str, Any]]:
    """Return products of a small shop; every kind has every brand and colour."""
    made = []
    for number in range(count):
        department = ("Kitchen", "Garden")[number % 2]
        kind = KINDS[department][number // 2 % 2]
        brand, colour = BRANDS[number // 4 % 4], COLOURS[number // 16 % 3]
        made.append(
            {
                "sku": f"P{number}",
                "title": f"{brand} {colour} {kind} {100 + number}",
                "brand": brand,
                "category": f"{department} > {kind}s",
                "price": f"${20 + number % 60}.50",
                "colour": colour,
                "stars": 3.5 + number % 3 / 2,
                "in_stock": number % 5 != 0,
            }
        )
    return made


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def learn(source: Path, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peakplan", "shop", "learn", str(source), "--output", str(output), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_shop_folder_is_whole_and_says_what_the_shop_sells(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "p.jsonl", catalogue()), tmp_path / "mine"
    done = learn(source, output)
    assert done.returncode == 0, done.stderr
    assert "240 products" in done.stdout
    told = json.loads(learn(source, tmp_path / "again", "--json").stdout)
    assert (told["products"], told["bad_rows"], told["fields"]["brand"]) == (240, 0, "brand")
    assert told["output"] == str(tmp_path / "again")

    mapping = CatalogueMapping.load(output / "mapping.yaml")
    assert mapping.price is not None
    assert (mapping.price.field, mapping.price.currency) == ("price", "USD")
    assert mapping.facets["type"].exact("kettle") == ["Kitchen > Kettles"]
    assert mapping.facets["color"].exact("red") == ["Red"]
    assert mapping.rating is not None
    assert mapping.rating.field == "stars"
    assert mapping.offers["in_stock"].values == [True]
    kinds = ShopFolder.load(output).lexicon.kinds
    assert kinds is not None
    assert [kind.name for kind in kinds.of([Thing("red kettles", ["kettles"])], 3)] == ["Kettles"]
    entries = {(row["text"], row["facet"]): row for row in rows_of(output / "lexicon.jsonl")}
    brand = entries["zorvex", "brand"]
    assert (brand["count"], brand["sure"], len(brand["categories"])) == (60, True, 3)
    tree = {row["name"]: row for row in rows_of(output / "categories.jsonl")}
    assert tree["Kettles"]["parent"] == tree["Kitchen"]["id"]
    assert tree["Kitchen"]["products"] == 120
    assert ShopFolder.load(output).lexicon.count("tandry") == 60
    assert not (tmp_path / "mine.partial").exists()


def test_categories_of_one_name_have_values_of_their_own(tmp_path: Path) -> None:
    rows = [
        row | {"category": f"{'Men' if number % 3 else 'Women'} > {row['category'].split(' > ')[1]}"}
        for number, row in enumerate(catalogue())
    ]
    output = run.learn(run.Task(write_lines(tmp_path / "p.jsonl", rows), tmp_path / "mine", {}, quiet=True)).output

    kinds = CatalogueMapping.load(output / "mapping.yaml").facets["type"]
    tree = {tuple(row["path"]): row["id"] for row in rows_of(output / "categories.jsonl")}
    assert kinds.exact("kettles") == ["Men > Kettles", "Women > Kettles"]
    for path in (("Men", "Kettles"), ("Women", "Kettles"), ("Women", "Rakes")):
        assert kinds.of_category(tree[path], path[-1]) == [" > ".join(path)]


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _sqlite(path: Path, rows: list[dict[str, Any]]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE items ({', '.join(rows[0])})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO items VALUES ({marks})", [tuple(row.values()) for row in rows])
    connection.close()


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e .[shop]")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _gzipped(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.mark.parametrize(
    ("name", "write"), [("p.csv", _csv), ("p.sqlite", _sqlite), ("p.parquet", _parquet), ("p.jsonl.gz", _gzipped)]
)
def test_every_format_teaches_the_same(tmp_path: Path, name: str, write: Any) -> None:
    write(tmp_path / name, catalogue())
    assert learn(tmp_path / name, tmp_path / "other").returncode == 0
    assert learn(write_lines(tmp_path / "p.jsonl", catalogue()), tmp_path / "lines").returncode == 0
    for file in ("lexicon.jsonl", "categories.jsonl"):
        assert (tmp_path / "other" / file).read_text() == (tmp_path / "lines" / file).read_text()


def test_bad_rows_are_named_by_line_and_counted(tmp_path: Path) -> None:
    rows = catalogue(40)
    lines = [json.dumps(row).encode() for row in rows]
    lines[4] = b'{"sku": "half'
    lines[9] = b'{"title": "\xff\xfe"}'
    lines[14] = b"[1, 2]"
    lines[19] = json.dumps(rows[19] | {"title": ""}).encode()
    (tmp_path / "p.jsonl").write_bytes(b"\n".join(lines))

    done = learn(tmp_path / "p.jsonl", tmp_path / "mine")

    assert done.returncode == 0, done.stderr
    assert "36 products" in done.stdout
    assert "4 rows are no products" in done.stdout
    told = dict(line.split("\t") for line in (tmp_path / "mine" / "bad_rows.tsv").read_text().splitlines())
    assert list(told) == ["5", "10", "15", "20"]
    assert "not JSON" in told["5"]
    assert "UTF-8" in told["10"]
    assert "has no title" in told["20"]


def test_a_csv_row_with_other_cells_is_named(tmp_path: Path) -> None:
    _csv(tmp_path / "p.csv", catalogue(40))
    with (tmp_path / "p.csv").open("a", encoding="utf-8") as file:
        file.write("only,two\n")
    done = learn(tmp_path / "p.csv", tmp_path / "mine")
    assert done.returncode == 0, done.stderr
    assert "line 42 has 2 cells" in done.stdout


def test_what_cannot_be_told_is_asked(tmp_path: Path) -> None:
    rows = [{"name": f"{row['title']} of ours", **row} for row in catalogue(60)]
    source = write_lines(tmp_path / "p.jsonl", rows)

    asked = learn(source, tmp_path / "mine")
    assert asked.returncode == 2
    assert "which field is the title" in asked.stderr
    assert "--map title=title" in asked.stderr
    assert not (tmp_path / "mine").exists()

    assert learn(source, tmp_path / "mine", "--map", "name=title").returncode == 0
    assert next(iter(CatalogueMapping.load(tmp_path / "mine" / "mapping.yaml").text)) == "name"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.xml", b"<a/>", "none of the elements"),
        ("p.jsonl", b"", "holds no row"),
        ("p.sqlite", b"no database at all, only text", "cannot be read"),
        ("p.parquet", b"PAR1", "no Parquet file"),
        ("p.csv", b"a,a\n1,2\n", "every column once"),
    ],
)
def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = learn(tmp_path / name, tmp_path / "mine")
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mine").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    done = learn(write_lines(tmp_path / "p.jsonl", catalogue(40)), tmp_path / "mine")
    assert done.returncode == 1
    assert "no shop folder" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letters.txt"]


def test_a_run_that_was_ended_goes_on(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "p.jsonl", catalogue(60_000)), tmp_path / "mine"
    partial = tmp_path / "mine.partial"
    command = [sys.executable, "-m", "peakplan.shop", "learn", str(source), "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'clients'}"}
    running = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while not (partial / "products-00002.bin").exists() and time.monotonic() < end:
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait(PATIENCE)
    assert not output.exists()
    kept = (partial / "products-00001.bin").stat().st_mtime_ns

    again = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL)
    seen = set()
    while again.poll() is None:
        if (partial / "products-00001.bin").exists():
            seen.add((partial / "products-00001.bin").stat().st_mtime_ns)
        time.sleep(0.01)
    assert again.returncode == 0
    assert seen == {kept}
    assert ShopFolder.load(output).summary["products"] == 60_000


WRONG = """
index: products
text: {title: 3, blurb: 1}
facets:
  colour: {field: colour}
  color: {field: colour, values: {Red: [crimson], Mauve: []}}
vertical: {field: category, values: {gardening: [Garden]}}
price: {field: title}
offers: {in_stock: {field: in_stock, values: [soon]}}
"""


def check(mapping: Path, products: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peakplan", "shop", "check", str(mapping), "--products", str(products), *more]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_what_fits_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_text(WRONG, encoding="utf-8")
    done = check(tmp_path / "mapping.yaml", write_lines(tmp_path / "p.jsonl", catalogue(60)))

    assert done.returncode == 1, done.stderr
    told = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "facets.colour",
        "vertical.values.gardening",
        "text.blurb",
        "price.field",
        "facets.color.values",
        "facets.color.values",
        "vertical.values.gardening",
        "offers.in_stock.values",
    ]
    assert "no product has Mauve" in done.stdout
    assert "products have blue, green" in done.stdout
    as_json = check(tmp_path / "mapping.yaml", tmp_path / "p.jsonl", "--json")
    assert (as_json.returncode, json.loads(as_json.stdout)["misfits"]) == (1, told)


def test_a_learnt_mapping_fits(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "p.jsonl", catalogue(60))
    assert learn(source, tmp_path / "mine").returncode == 0
    done = check(tmp_path / "mine" / "mapping.yaml", source)
    assert (done.returncode, done.stderr) == (0, "")
    assert "everything fits" in done.stdout
    as_json = check(tmp_path / "mine" / "mapping.yaml", source, "--json")
    assert json.loads(as_json.stdout) == {"mapping": str(tmp_path / "mine" / "mapping.yaml"), "misfits": []}


def test_a_mapping_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_text("index: p\n", encoding="utf-8")
    done = check(tmp_path / "mapping.yaml", write_lines(tmp_path / "p.jsonl", catalogue(10)))
    assert done.returncode == 1
    assert "text is required" in done.stderr
    assert "Traceback" not in done.stderr
