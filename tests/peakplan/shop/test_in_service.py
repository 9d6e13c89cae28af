"""The shop folder that is set is what the service searches, through its own mapping; the sample shop is for none."""

import asyncio
import json
from pathlib import Path

import pytest

from peakplan.shop.run import Task, learn
from service.api.shop import SampleShop, ShopAnswer, ShopRequest
from service.planner.plan import Plan

ROWS = [
    {"sku": f"k{at}", "label": f"{color} {thing}", "cat": f"Home > {thing}s", "amount": 20.0 + at, "about": "Fine."}
    for at, (color, thing) in enumerate((c, t) for t in ("Kettle", "Lantern") for c in ("Red", "Blue", "Green"))
]
GIVEN = {"label": "title", "sku": "id", "cat": "category", "amount": "price", "about": "description"}
ASKED = ShopRequest(
    query="red kettle under 30",
    plan=Plan(
        mode="keyword", intent="find_product", queries=["red kettle"], facets={"type": ["kettle"]},
        price={"max": 30, "currency": "EUR"},
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("learnt")
    source = place / "products.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return learn(Task(source, place / "mine", GIVEN, currency="EUR", quiet=True)).output


def searched(shop: SampleShop, asked: ShopRequest = ASKED) -> ShopAnswer:
    return asyncio.run(shop.search(asked))


def test_the_folder_s_own_products_are_searched_through_its_mapping(folder: Path, tmp_path: Path) -> None:
    found = searched(SampleShop(tmp_path, folder=folder))
    assert found.reason is None
    first = found.by_plan[0]
    assert (first.id, first.name, first.price, first.currency) == ("k0", "Red Kettle", 20.0, "EUR")
    assert first.category == "Home > Kettles"
    assert {hit.name.split()[-1] for hit in found.by_plan[:3]} == {"Kettle"}
    assert not found.nothing
    assert not list(tmp_path.iterdir()), "no sample shop is built beside it"


def test_a_folder_without_products_says_so_and_no_other_shop_answers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_bytes((folder / "mapping.yaml").read_bytes())
    (tmp_path / "shop.json").write_bytes((folder / "shop.json").read_bytes())
    found = searched(SampleShop(tmp_path / "cache", folder=tmp_path))
    assert found.reason == "The shop folder has no products.sqlite: learn it again, or name PEAKPLAN_SHOP_URL."
    assert found.by_plan == []


def test_a_folder_that_was_learnt_again_is_opened_anew(folder: Path, tmp_path: Path) -> None:
    shop = SampleShop(tmp_path, folder=folder)
    assert searched(shop).by_plan
    shop.renew()
    assert searched(shop).by_plan
