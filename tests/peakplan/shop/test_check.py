"""`peakplan shop check` as a person uses it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.peakplan.shop.test_learn import catalogue, learn, write_lines
from tests.processes import PATIENCE
from tests.server_process import REPOSITORY

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
