"""What a shopper refuses, as filters of every translation: no more and no less than that."""

from collections.abc import Mapping, Sequence

import pytest
from peakplan_client import CatalogueMapping, Plan
from peakplan_client.search import Filter, NoneOf, NotInText
from peakplan_client.searching import searches


def filters(mapping: CatalogueMapping, exclude: Mapping[str, Sequence[str]]) -> tuple[Filter, ...]:
    (search,) = searches(Plan.model_validate({"queries": ["anything"], "exclude": exclude}), mapping, "").searches
    return search.filters


def test_a_refused_value_is_looked_up_in_every_facet() -> None:
    wines = CatalogueMapping.model_validate(
        {
            "index": "wines",
            "text": {"name": 1},
            "exclude_text": ["name"],
            "facets": {"brand": {"field": "maker"}, "type": {"field": "grape", "values": {"Merlot": ["merlots"]}}},
        }
    )
    assert filters(wines, {"feature": ["merlot", "oak"], "brand": ["Muga"]}) == (
        NoneOf("grape", ("Merlot",)),
        NotInText(("name",), "merlot"),
        NotInText(("name",), "oak"),
        NoneOf("maker", ("muga",)),
    )


@pytest.mark.parametrize(
    ("exclude", "refused"),
    [
        ({"type": ["balls"]}, (NotInText(("name",), "balls"),)),  # of which the shop has some among pet toys
        ({"type": ["pet toys"]}, (NoneOf("kind", ("pet toys",)),)),
        (
            {"material": ["glass"]},  # of which crystal is one
            (NoneOf("kind", ("glasses",)), NotInText(("name",), "glass"), NotInText(("name",), "crystal")),
        ),
        ({"color": ["scarlet"]}, (NoneOf("color", ("red",)),)),
    ],
)
def test_what_a_shopper_refuses_is_no_more_and_no_less_than_that(
    exclude: dict[str, list[str]], refused: tuple[Filter, ...]
) -> None:
    kinds = {"pet toys": ["ball", "chew bone"], "glasses": ["sunglasses"]}
    shop = CatalogueMapping.model_validate(
        {
            "index": "p",
            "text": {"name": 1},
            "exclude_text": ["name"],
            "facets": {
                "type": {"field": "kind", "values": kinds},
                "color": {"field": "color", "values": {"red": ["scarlet"]}},
            },
        }
    )
    assert filters(shop, exclude) == refused
