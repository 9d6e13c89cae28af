"""Files as shops have them, small and made up: learnt as their owners mean them, or refused with what helps."""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from peakplan_client.mapping import CatalogueMapping

from peakplan.shop.checking import misfits
from peakplan.shop.merging import BadRow
from peakplan.shop.notation import Notation
from peakplan.shop.products import product
from peakplan.shop.roles import Roles, RolesError
from peakplan.shop.run import Task, learn
from peakplan.shop.sources import SourceError, rows
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL

FILES = Path(__file__).with_name("files")
COLOURS = ["blue", "green", "grey", "red"]
FLAT = [["Clothing"], ["Furniture"], ["Kitchen"], ["Lighting"]]


@dataclass(frozen=True)
class Right:
    """What is right for a file: `price` is the field, the first product's price and the currency."""

    title: str = "title"
    price: tuple[str, float | None, str | None] = ("price", 7.99, None)
    categories: list[list[str]] | None = field(default_factory=lambda: FLAT)
    products: int = 20
    facets: dict[str, list[str]] = field(default_factory=dict)
    mapping: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    note: str = ""
    unused: str = ""


def german(field_of_price: str, title: str, top: str, colour: str) -> Right:
    found = [[top], *([top, *each] for each in FLAT)]
    return Right(title, (field_of_price, 159.8, "EUR"), found, facets={colour: COLOURS})


GOOGLE = Right(
    "g:title", ("g:price", 7.99, "EUR"), [["Home", "Kitchen", "Mugs"], ["Home", "Lighting", "Lamps"]],
    facets={"g:color": COLOURS},
    mapping={"offers": {"in_stock": {"field": "g:availability", "values": ["in_stock"]},
                        "on_sale": {"field": "g:sale_price", "min": 0.01}}},
)  # fmt: skip
SORTS = {name: Right(price=("price", 479.4, code)) for name, code in {
    "ASen": "AUD", "CSen": "CAD", "RSde": "BRL", "Rsen": "INR", "USSen": "USD", "de€": "EUR", "enUSDpc": "USD",
    "frkr": None, "fr€": "EUR", "€de": "EUR",
}.items()}  # fmt: skip
TREE = [["Home", "Rugs"], ["Garden", "Hoses"]]
LEAVES = [["Chairs"], ["Fittings"], ["Mugs"], ["Players"], ["Scarfs"]]
LEARNT = {
    "r01-shopify-variants.csv": Right(
        "Title", ("Variant Price", 7.99, None), facets={"Color": COLOURS}, note="20 products have variants"),
    "r02-woo-sale-price.csv": Right(
        "Name", ("Regular price", 7.99, None), [["Gifts"], ["Kitchen", "Mugs"]], facets={"Color": COLOURS},
        roles={"Sale price": "sale"}, mapping={"offers": {"in_stock": {"field": "In stock?", "values": ["1"]},
                                                          "on_sale": {"field": "Sale price", "min": 0.01}}}),
    "r03-magento-categories.csv": Right(
        "name", categories=[["Kitchen"], ["Kitchen", "Mugs"]], facets={"color": COLOURS},
        mapping={"offers": {"in_stock": {"field": "qty", "min": 1}}}, roles={"manufacturer": "brand"}),
    "r04-array.json": Right(),
    "r04b-array-one-line.json": Right(),
    "r05-spaces.csv": Right("Product Name", ("Selling Price", 7.99, "USD"), roles={"Brand Name": "brand"}),
    "r06-german.csv": german("Preis", "Bezeichnung", "Haus", "Farbe"),
    "r06b-french.csv": german("Prix TTC", "Désignation", "Maison", "Couleur"),
    **{f"r07-{name}.jsonl": right for name, right in SORTS.items()},
    "r07-who€.jsonl": Right(price=("price", 1479.0, "EUR")),
    "r08-cp1252-header.csv": Right(price=("price", 10.5, None), categories=[["Lighting"]]),
    "r08-cp1252.csv": Right(),
    "r08-cr.csv": Right(),
    "r08-crlf-bom.csv": Right(),
    "r08-header-one-word.csv": Right("Titel", ("Preis", 7.99, None), roles={"Nr": "id", "Marke": "brand"}),
    "r08-utf16.csv": Right(),
    "r09-quoted-inch.csv": Right(),
    "r09-sep.csv": Right(),
    "r09-short-rows.csv": Right(),
    "r10-comma-decimal.csv": Right(),
    "r10-one-row.csv": Right(products=1, categories=[["Kitchen"]]),
    "r10-range.csv": Right(price=("price", 7.99, "USD"), note="20 products have several prices"),
    "r11-gmc.tsv": GOOGLE,
    "r11-gmc.tsv.gz": GOOGLE,
    "r17-gmc.txt": GOOGLE,
    "r17.zip": GOOGLE,
    "r11b-gmc-official.tsv": Right(
        price=("price", 5.99, "USD"), categories=[["Home", "Mugs"]], roles={"image link": "image"}),
    "r12-jsonld.jsonl": Right(
        "name", ("offers.price", 7.99, "EUR"), [["Home", *each] for each in FLAT],
        facets={"additionalProperty[Color]": COLOURS}, roles={"brand.name": "brand", "sku": "id"},
        mapping={"rating": {"field": "aggregateRating.ratingValue", "best": 5}}),
    "r12b-jsonld-offers-list.jsonl": Right(
        "name", ("offers.price", 7.99, "EUR"), [["Home", *each] for each in FLAT], roles={"brand.name": "brand"}),
    "r14-category-ids.csv": Right(
        "name", categories=[["Lamp"], ["Mug"], ["Scarf"]], unused="category_id holds ids of categories and no names"),
    "r15-gtin.csv": Right(note="gtin is no id: 20 of 20 products have 4.00639E+12"),
    "r18-entities-slashes.csv": Right(
        products=40, categories=[["1/2 Inch Fittings"], ["DVD/Blu-ray"], ["Home & Living"], ["Kitchen & Dining"],
                                 ["Men's/Women's Clothing"]]),
    "r19-multi-category-comma.csv": Right(
        products=40, categories=[["Home", each] for each in ("Chairs", "Gifts", "Mugs", "Players")]),
    "r19b-multi-category-semicolon.csv": Right("name", products=40, categories=[*LEAVES, ["Gifts"]]),
    "r20-prefix-code.csv": Right(price=("price", 7.99, "EUR"), products=40, categories=LEAVES),
    "r20c-sale-regular.csv": Right(
        price=("regular_price", 7.99, None), products=40, categories=LEAVES, roles={"sale_price": "sale"}),
    "r20e-two-currencies.csv": Right(
        price=("price", 7.99, "USD"), products=40, categories=LEAVES, note="price is in USD (30), GBP (10)"),
    "r21-size-color.csv": Right(
        products=40, categories=LEAVES, facets={"color": ["Blue", "Green", "Red"],
                                                "size": ["10-Dec", "L", "M", "M/L", "S", "XL"]}),
    "r22-elasticdump.jsonl": Right(roles={"_id": "id"}),
    "r23-shopify-bulk.jsonl": Right(
        price=("price", 7.99, "EUR"), facets={"color": ["Blue", "Green", "Grey", "Red"], "size": ["Large", "Small"]},
        note="20 products have variants"),
    "r27-rank-and-percent.jsonl": Right(
        products=40, mapping={"rating": {"field": "rating", "best": 100},
                              "offers": {"in_stock": {"field": "availability", "values": ["In stock"]}}},
        note="release_date sorts no products"),
    "r28-stock-words.jsonl": Right(
        products=40, mapping={"offers": {"in_stock": {"field": "availability", "values": ["Auf Lager"]}}}),
    "s-italian.csv": Right(
        "Denominazione", ("Prezzo", 912.5, "EUR"), TREE, products=12,
        roles={"Marchio": "brand", "Disponibilità": "stock"}),
    "s-swiss.csv": Right(
        "Bezeichnung", ("VK-Preis", 1012.5, "CHF"), [["Rugs"]], products=12,
        mapping={"offers": {"in_stock": {"field": "Lagerstatus", "values": ["an Lager"]}}}),
    "s-markets.csv": Right(
        price=("price_eur", 12.5, "EUR"), categories=[["Rugs"]], products=12,
        note="price_gbp is not used, price_eur is"),
    "s-compare-at.csv": Right(
        price=("price", 12.5, None), categories=[["Rugs"]], products=12, roles={"compare_at_price": "sale"}),
    "s-google.xml": Right(
        price=("price", 12.5, "GBP"), categories=TREE, products=6,
        facets={"color": ["Blue", "Grey", "Red"], "size": ["L", "M", "S"]}, roles={"sale_price": "sale"}),
    "s-graph.json": Right(
        "name", ("offers.lowPrice", 12.5, "EUR"), TREE, products=12, note="offers.highPrice is not used",
        mapping={"offers": {"in_stock": {"field": "offers.availability", "values": ["https://schema.org/InStock"]}},
                 "rating": {"field": "aggregateRating.ratingValue", "best": 10}}),
    "s-bulk.ndjson": Right(price=("price", 12.5, None), categories=[["Rugs"]], products=12, roles={"_id": "id"}),
    "s-cp1251.csv": Right(
        "Название", ("Цена", 1125, "RUB"), [["Ковры"], ["Лампы"]], products=12, roles={"Артикул": "id"}),
    "s-wix.csv": Right(
        "name", ("price", 12.5, None), [["Rugs"]], products=6, facets={"Color": ["Blue", "Red"]},
        roles={"handleId": "id"}),
    "s-etsy.csv": Right(
        "TITLE", ("PRICE", 12.5, "USD"), [["Rug"], ["Table lamp"]], products=12,
        facets={"Colour": ["Blue", "Red"], "MATERIALS": ["cotton", "wool"]}),
    "s-amazon.jsonl": Right(
        price=("price", None, "USD"), categories=TREE, products=12, roles={"categories": "category 1"}),
    "s-meta.csv": Right(
        price=("price", 12.5, "EUR"), categories=[["Home & Garden", "Decor", "Rugs"]], products=12),
    "s-cat-objects.jsonl": Right(
        "name", ("price", 12.5, None), TREE, products=12, facets={"attributes[Color]": ["Blue", "Green", "Red"]}),
    "s-entities.csv": Right(price=("price", 12.5, "EUR"), categories=[["Home & Living", "Rugs"]], products=12),
    "s-map.json": Right(price=("price", 12.5, None), categories=[["Rugs"]], products=12, roles={"_id": "id"}),
    "s-yandex.xml": Right(
        "name", ("price", 125, "RUB"), [["Home", "Rugs"], ["Trowels"]], products=12, roles={"currencyId": "currency"}),
    "s-offers.jsonl": Right("name", ("offers.price", 12.5, "EUR"), [["Rugs"]], products=12),
    "s-stock-text.csv": Right(
        price=("price", 12.5, "USD"), categories=[["Rugs"]], products=12,
        mapping={"offers": {"in_stock": {"field": "availability", "values": ["In stock (5)", "Only 2 left"]}}}),
    "s-hardware.csv": Right(
        price=("price", 3.99, "GBP"), categories=[["Screw"], ["Drill bit"], ["Gloves"]], products=40,
        note="price is in GBP (30), EUR (10)"),
    "s-french-nocat.csv": Right(
        "Désignation", ("Prix", 12.9, "EUR"), [["Chaise"], ["Lampe"], ["Table"], ["Tapis"]], products=24),
}  # fmt: skip
REFUSED = {"r10-headerless.csv": "write a line above it that names the columns"}


def test_every_file_has_an_expectation() -> None:
    assert {path.name for path in FILES.iterdir()} == LEARNT.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", LEARNT)
def test_a_shops_own_file_is_learnt_as_its_owner_means_it(tmp_path: Path, name: str) -> None:
    right = LEARNT[name]
    done = learn(Task(FILES / name, tmp_path / "shop", {}, quiet=True))
    raw = yaml.safe_load((done.output / "mapping.yaml").read_text(encoding="utf-8"))
    tree = [json.loads(line)["path"] for line in (done.output / "categories.jsonl").read_text().splitlines()]
    values = {each["field"]: list(each["values"]) for each in raw["facets"].values() if "values" in each}
    first = next(found for found in rows(FILES / name) if not isinstance(found, BadRow))
    one = product(*first, done.roles)

    assert (done.products, done.bad_count, done.roles.title) == (right.products, 0, right.title)
    assert one is not None
    assert (raw["price"]["field"], one.price, raw["price"].get("currency")) == right.price
    assert all(path in tree for path in right.categories or ())
    assert (right.categories is None) == (not tree)
    assert {field: sorted(values[field]) for field in right.facets} == right.facets
    assert {key: raw[key] for key in right.mapping} == right.mapping
    assert right.roles.items() <= done.roles.told().items()
    assert any(right.note in note for note in done.notes) or not right.note
    assert any(right.unused in each for each in done.roles.unused) if right.unused else not done.roles.unused
    assert done.summary["score"] <= (95 if right.unused else 100)
    assert (
        misfits(CatalogueMapping.load(done.output / "mapping.yaml"), Vocabulary.load(SHIPPED_MODEL), FILES / name) == []
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learnt_is_refused_with_what_helps(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[name]):
        learn(Task(FILES / name, tmp_path / "shop", {}, quiet=True))
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
