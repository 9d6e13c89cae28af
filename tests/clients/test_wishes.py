"""What of a plan a product meets, what it does not, and what its catalogue does not tell."""

from typing import Any

import pytest
from peakplan_client import CatalogueMapping, Plan
from peakplan_client.wishes import Wishes

MAPPING = CatalogueMapping.model_validate(
    {
        "index": "products",
        "text": {"name": 4, "description": 1},
        "exclude_text": ["name", "description"],
        "facets": {
            "type": {"field": "style", "values": {"boot": ["wellies"], "bag": ["handbag"], "camping": ["tent"]}},
            "brand": {"field": "brand"},
            "color": {},
        },
        "price": {"field": "price", "currency": "USD", "rates": {"EUR": 1.1}},
        "rating": {"field": "stars", "best": 10},
        "offers": {"in_stock": {"field": "stock", "min": 1}, "on_sale": {"field": "sale", "values": [True]}},
    }
)
BOOTS = {
    "name": "Red Leather Boots",
    "description": "Fine.",
    "style": "boot",
    "brand": "Acme",
    "price": 88.0,
    "stars": 9,
}


def judged(plan: dict[str, Any], product: dict[str, Any]) -> dict[str, list[str]]:
    found = Wishes(Plan.model_validate(plan | {"queries": ["x"]}), MAPPING).judge(product)
    return {
        name: [wish.says for wish in wishes]
        for name, wishes in (("met", found.met), ("unmet", found.unmet), ("unknown", found.unknown))
        if wishes
    }


@pytest.mark.parametrize(
    ("plan", "product", "expected"),
    [
        ({"facets": {"type": ["boots"]}}, {}, {"met": ["boots"]}),
        ({"facets": {"type": ["wellies"]}}, {}, {"unknown": ["wellies"]}),
        ({"facets": {"type": ["tent"]}}, {}, {"unmet": ["tent"]}),
        ({"facets": {"type": ["leather boots"]}}, {}, {"met": ["leather boots"]}),
        ({"facets": {"type": ["hiking boots"]}}, {}, {"unknown": ["hiking boots"]}),
        ({"facets": {"type": ["kettle"]}}, {}, {"unmet": ["kettle"]}),
        ({"facets": {"color": ["red"]}}, {}, {"met": ["color: red"]}),
        ({"facets": {"color": ["blue"]}}, {}, {"unmet": ["color: blue"]}),
        ({"facets": {"color": ["blue"]}}, {"name": "Boots"}, {"unknown": ["color: blue"]}),
        ({"facets": {"brand": ["acme"]}}, {}, {"met": ["brand: acme"]}),
        ({"facets": {"brand": ["other"]}}, {}, {"unmet": ["brand: other"]}),
        ({"facets": {"brand": ["other"]}}, {"brand": None}, {"unknown": ["brand: other"]}),
        ({"price": {"max": 90, "currency": "USD"}}, {}, {"met": ["up to 90 USD"]}),
        ({"price": {"min": 20, "max": 80}}, {}, {"unmet": ["20 to 80"]}),
        ({"price": {"max": 80, "currency": "EUR"}}, {}, {"met": ["up to 80 EUR"]}),
        ({"price": {"min": 90, "currency": "JPY"}}, {}, {"unknown": ["from 90 JPY"]}),
        ({"price": {"max": 90}}, {"price": None}, {"unknown": ["up to 90"]}),
        ({"rating": {"min": 4.5}}, {}, {"met": ["rated 4.5 of 5 or better"]}),
        ({"rating": {"min": 4.6}}, {}, {"unmet": ["rated 4.6 of 5 or better"]}),
        ({"rating": {"min": 4.6}}, {"stars": None}, {"unknown": ["rated 4.6 of 5 or better"]}),
        ({"exclude": {"material": ["leather"]}}, {}, {"unmet": ["not leather"]}),
        ({"exclude": {"material": ["suede"]}}, {}, {"unknown": ["not suede"]}),
        ({"exclude": {"material": ["leather"]}}, {"name": "Canvas Boots"}, {"met": ["not leather"]}),
        ({"exclude": {"brand": ["Acme"]}}, {}, {"unmet": ["not Acme"]}),
        ({"exclude": {"brand": ["Other"]}}, {}, {"met": ["not Other"]}),
        ({"offers": ["in_stock"]}, {"stock": 3}, {"met": ["in stock"]}),
        ({"offers": ["in_stock"]}, {"stock": 0}, {"unmet": ["in stock"]}),
        ({"offers": ["on_sale"]}, {"sale": False}, {"unmet": ["on sale"]}),
        ({"offers": ["free_shipping"]}, {}, {"unknown": ["free shipping"]}),
    ],
)
def test_a_wish_is_met_or_not_or_nobody_knows(
    plan: dict[str, Any], product: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert judged(plan, BOOTS | product) == expected


def test_of_several_things_a_product_is_judged_as_the_one_that_it_is() -> None:
    plan = {
        "parts": [
            {"facets": {"type": ["tent"]}, "queries": ["tent"], "price": {"max": 10}},
            {"facets": {"type": ["boots"]}, "queries": ["boots"], "exclude": {"material": ["leather"]}},
        ],
        "offers": ["in_stock"],
    }
    assert judged(plan, BOOTS | {"stock": 1}) == {"met": ["in stock", "boots"], "unmet": ["not leather"]}
    tent = {"name": "Dear tent", "style": "camping", "price": 99}
    assert judged(plan, tent) == {"met": ["tent"], "unmet": ["up to 10"], "unknown": ["in stock"]}
