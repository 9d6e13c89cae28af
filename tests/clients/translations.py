"""Plans, mappings and questions from a seed, to compare both clients' translations."""

import random
from collections.abc import Iterator
from typing import Any

import yaml
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.shop import MAPPING

ENGINES = ("algolia", "meilisearch", "typesense")
_WORDS = (
    "boots|hiking boots|women's boots|sofas|couch|glass of wine|leather|suede|wood|red|navy|T-Shirt|3.5mm jack|"
    "10½ inch|½|5,5|18-1/4|dresses|glasses|Jo's|straße|ΣΟΦΟΣ|Ⅻ|café|x\" OR 1=1|`tick` && a|a:b|-nike|\\back|[1 TO 2]|☂|"
    "日本 茶|roses|bouquet of roses|tent|F|ladies|birthday|running shoes|set|it's|waterproof|&&|''"
).split("|")
_FACETS = ("type", "audience", "color", "material", "feature", "occasion", "brand")
_QUESTIONS = (
    '-nike boots "red suede"',
    "boots !leather NOT wood",
    'a "quoted phrase" - 5',
    "",
    "x",
    "red-hot -red",
    '-"faux fur" hats',
)
_OTHER = {
    "index": "goods",
    "text": {"title": 3, "body": 2.5, "maker.name": 1},
    "exclude_text": ["title", "body"],
    "facets": {
        "type": {
            "field": "kind",
            "values": {"boots": ["wellies"], "sofas": ["couch"], "glass": ["wine glass"]},
            "ids": {"k1": "boots"},
            "boost": 0.25,
            "filter": True,
        },
        "brand": {"field": "maker.name", "boost": 1.5},
        "color": {"boost": 0},
    },
    "price": {"field": "cost", "currency": "USD", "currency_field": "coin", "rates": {"EUR": 1.1}},
    "rating": {"field": "stars", "best": 10},
    "offers": {"in_stock": {"field": "stock", "min": 1}, "on_sale": {"field": "sale", "values": [True, "yes", 3]}},
    "sort": {
        "price_asc": {"field": "cost", "order": "asc"},
        "newest": {"index": "goods_new"},
        "rating": {"field": "stars"},
    },
}


def _part(rng: random.Random) -> dict[str, Any]:
    def facets(most: int) -> dict[str, list[str]]:
        return {facet: rng.choices(_WORDS, k=rng.randint(1, 2)) for facet in rng.sample(_FACETS, rng.randint(0, most))}

    low, high = sorted(rng.choices([1, 19.99, 80, 1200.5, 1e6], k=2))
    price = {
        "min": rng.choice([None, low]),
        "max": rng.choice([None, high]),
        "currency": rng.choice([None, "USD", "EUR", "JPY"]),
    }
    return {
        "facets": facets(4),
        "exclude": facets(2),
        "price": price,
        "queries": rng.choices(_WORDS, k=rng.randint(1, 3)),
    }


def cases(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield what one call of `translate` takes, as JSON has it."""
    rng = random.Random(seed)
    mappings = [yaml.safe_load(MAPPING.read_text(encoding="utf-8")), _OTHER]
    for _ in range(count):
        plan = _part(rng) | {
            "vertical": rng.choice([None, "furniture", "hardware"]),
            "rating": {"min": rng.choice([None, None, 3.7])},
            "sort": rng.choice(["relevance", "relevance", "price_asc", "newest", "rating", "best_selling"]),
            "offers": rng.sample(["in_stock", "on_sale", "free_shipping"], rng.randint(0, 2)),
            "parts": [_part(rng) for _ in range(rng.choice([0, 0, 0, 2]))],
            "kinds": rng.sample(
                [{"id": "k1", "name": "x"}, {"id": "k2", "name": "sofas"}, {"id": "k3", "name": "?"}], rng.randint(0, 2)
            ),
        }
        if rng.random() < 0.02:
            plan["queries"] = []
        question = " ".join([*rng.choices(_WORDS, k=rng.randint(0, 40)), rng.choice(_QUESTIONS)])
        engine, limit = rng.choice(ENGINES), rng.choice([1, 10])
        yield {"plan": plan, "mapping": rng.choice(mappings), "engine": engine, "question": question, "limit": limit}


def in_python(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the Python client makes of a case."""
    mapping = CatalogueMapping.model_validate(case["mapping"])
    made = translate(Plan.model_validate(case["plan"]), mapping, case["engine"], case["question"], limit=case["limit"])
    return {"requests": list(made.requests), "notes": list(made.notes)}
