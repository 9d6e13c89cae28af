"""Files as shops have them, small and made up: learnt as their owners mean them, or refused with what helps."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from peakplan_client.mapping import CatalogueMapping

from peakplan.shop.checking import misfits
from peakplan.shop.merging import BadRow
from peakplan.shop.products import product
from peakplan.shop.roles import Roles, RolesError
from peakplan.shop.run import Task, learn
from peakplan.shop.sources import SourceError, rows
from peakplan.shop.texts import Notation
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL

USUAL: dict[str, Any] = {
    "title": "title", "price": ["price", 7.99, None], "products": 20, "facets": {}, "mapping": {}, "roles": {},
    "categories": [["Clothing"], ["Furniture"], ["Kitchen"], ["Lighting"]], "note": "", "unused": "",
}  # fmt: skip
FILES = yaml.safe_load(Path(__file__).with_name("files.yaml").read_text(encoding="utf-8"))
LEARNT = [case for case in FILES if "refused" not in case]
REFUSED = [case for case in FILES if "refused" in case]


@pytest.fixture
def source(tmp_path: Path, case: dict[str, Any]) -> Path:
    """Return a shop's file, written out."""
    held = case["content"]
    (tmp_path / case["file"]).write_bytes(held.encode() if isinstance(held, str) else held)
    return tmp_path / str(case["file"])


@pytest.mark.parametrize("case", LEARNT, ids=lambda case: case["file"])
def test_a_shops_own_file_is_learnt_as_its_owner_means_it(tmp_path: Path, source: Path, case: dict[str, Any]) -> None:
    right = USUAL | case
    done = learn(Task(source, tmp_path / "shop", {}, quiet=True))
    raw = yaml.safe_load((done.output / "mapping.yaml").read_text(encoding="utf-8"))
    tree = [json.loads(line)["path"] for line in (done.output / "categories.jsonl").read_text().splitlines()]
    values = {each["field"]: list(each["values"]) for each in raw["facets"].values() if "values" in each}
    first = next(found for found in rows(source) if not isinstance(found, BadRow))
    one = product(*first, done.roles)

    assert (done.products, done.bad_count, done.roles.title) == (right["products"], 0, right["title"])
    assert one is not None
    assert [raw["price"]["field"], one.price, raw["price"].get("currency")] == right["price"]
    assert all(path in tree for path in right["categories"] or ())
    assert (right["categories"] is None) == (not tree)
    assert {field: sorted(values[field]) for field in right["facets"]} == right["facets"]
    assert {key: raw[key] for key in right["mapping"]} == right["mapping"]
    assert right["roles"].items() <= done.roles.told().items()
    assert any(right["note"] in note for note in done.notes) or not right["note"]
    assert any(right["unused"] in each for each in done.roles.unused) if right["unused"] else not done.roles.unused
    assert done.summary["score"] <= (95 if right["unused"] else 100)
    mapping = CatalogueMapping.load(done.output / "mapping.yaml")
    assert misfits(mapping, Vocabulary.load(SHIPPED_MODEL), source) == []


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["file"])
def test_what_cannot_be_learnt_is_refused_with_what_helps(tmp_path: Path, source: Path, case: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=case["refused"]):
        learn(Task(source, tmp_path / "shop", {}, quiet=True))
    assert not (tmp_path / "shop").exists()


WIX = """handleId,fieldType,name,sku,price,productOptionName1,productOptionDescription1
p1,Product,Blue Tee,T,20,Size,S;M
p1,Variant,,T-S,,,S
"""
WOO = """ID,Type,SKU,Name,Regular price,Parent,Attribute 1 name,Attribute 1 value(s)
1,variable,T,Blue Tee,,,Size,"S, M"
2,variation,T-S,Blue Tee - S,20,T,Size,S
3,variation,T-M,Blue Tee - M,22,id:1,Size,M
"""
MAGENTO = """sku,product_type,name,price,additional_attributes,configurable_variations
T-S,simple,Blue Tee-S,20,size=S,
T-M,simple,Blue Tee-M,22,size=M,
T,configurable,Blue Tee,,brand=Norvik,"sku=T-S,size=S|sku=T-M,size=M"
"""


@pytest.mark.parametrize(("text", "price"), [(WIX, "price"), (WOO, "Regular price"), (MAGENTO, "price")])
def test_variants_in_rows_of_their_own_are_one_product(tmp_path: Path, text: str, price: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    (found,) = rows(tmp_path / "p.csv")
    assert not isinstance(found, BadRow)
    row = found[1]
    roles = Roles(
        title="name" if "name" in row else "Name", price=price, attributes=("Size" if "Size" in row else "size",),
        notation={"Size": Notation(",;␟"), "size": Notation("␟")},
    )  # fmt: skip
    one = product(*found, roles)
    assert one is not None
    assert (one.title, one.price, [sorted(each) for each in one.attributes.values()]) == ("Blue Tee", 20, [["M", "S"]])
    assert one.variants > 1


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.csv.gz", gzip.compress(b"a,b\n1,2\n" * 200)[:-30] + b"xxxx", "is it whole"),
        ("p.xml", b"<html><p>hi<br></html>", "cannot be read"),
        ("p.xml", b"<shop><name>x</name></shop>", "none of the elements"),
        ("p.zip", b"PK\x03\x04junk", "cannot be read"),
        ("p.json", b'[{"id":1,"title":"a lamp","price":1},{"id":2,"ti', "nothing after it is read"),
        ("p.csv", b"\xd0\xcf\x11\xe0 excel", "save it as CSV in UTF-8"),
        ("p.csv", b"id,title,price\n1,A lamp,5\nx\ny\n", "only 1 products beside 2 rows"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((SourceError, RolesError), match=told):
        learn(Task(tmp_path / name, tmp_path / "shop", {}, quiet=True))
