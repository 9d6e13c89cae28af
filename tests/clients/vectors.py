"""What every implementation of the client has to find, in Python or TypeScript: arms, drafts and translations.

`python -m tests.clients.vectors` writes both files anew. A change of the experiments' deals every running one anew; a
change of the translations' is what engines will be sent.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.experiments import assigned, bucket, interleave, is_unit
from peakplan_client.shop import MAPPING

EXPERIMENTS = Path("clients/experiment-vectors.json")
TRANSLATIONS = Path(__file__).with_name("translations.jsonl")
_ARMS = (
    {"control": 50, "2": 30, "1": 20},  # names that an object of JavaScript would sort
    {"control": 1, "nobody": 0, "newer": 2},
    {"all": 100_000},
)
_SHOPPERS = ("browser-{}", "browser-{} ü👟", "{}" + "x" * 99, "")
ENGINES = ("algolia", "meilisearch", "typesense")  # of the TypeScript client
ASKED = "red boots under $1234567.89 not nike or teal in stock"
PLAN: dict[str, Any] = {
    "queries": ["red boots"],
    "facets": {"color": ["crimson"]},
    "exclude": {"brand": ["nike"], "color": ["teal"]},
    "price": {"min": 10, "max": 1234567.89},
    "offers": ["in_stock", "free_shipping"],
}
_SORTED = {**PLAN, "sort": "price_asc", "exclude": {"feature": ["ankle strap"]}}
_PLANS = {
    "everything": PLAN,
    "an order: what matches well stands before the rest": _SORTED,
    "an order without a wish": {**_SORTED, "facets": {}, "exclude": {}},
    "an order: what is the thing stands first": {**_SORTED, "facets": {"type": ["hiking boots"], "color": ["crimson"]}},
}
_KINDS = {"type": {"field": "kind", "values": {"Boots": []}}, "color": {"field": "color"}}
_TEXTS = {"index": "a.p", "text": dict(zip("abcdef", range(6, 0, -1), strict=True)), "exclude_text": ["b", "e", "f"]}
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
_OTHER = yaml.safe_load("""
index: goods
text: {title: 3, body: 2.5, maker.name: 1}
exclude_text: [title, body]
facets:
  type:
    field: kind
    ids: {k1: boots}
    boost: 0.25
    filter: true
    values: {boots: [wellies], sofas: [couch], glass: [wine glass]}
  brand: {field: maker.name, boost: 1.5}
  color: {boost: 0}
price: {field: cost, currency: USD, currency_field: coin, rates: {EUR: 1.1}}
rating: {field: stars, best: 10}
offers: {in_stock: {field: stock, min: 1}, on_sale: {field: sale, values: [true, "yes", 3]}}
sort: {price_asc: {field: cost, order: asc}, newest: {index: goods_new}, rating: {field: stars}}
""")


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


def drawn(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
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


def named() -> Iterator[dict[str, Any]]:
    """Yield the cases of the translations' file, which say what each is about."""
    example = yaml.safe_load(Path("clients/examples/mapping.yaml").read_text(encoding="utf-8"))
    for about, plan in _PLANS.items():
        for engine in ("opensearch", "solr", "typesense", "meilisearch", "algolia", "vespa"):
            yield {"about": about, "engine": engine, "mapping": example, "plan": plan, "question": ASKED}
    kinds = {"mapping": {**example, "facets": _KINDS}, "question": "red boots cheapest"}
    plan = {**PLAN, "sort": "price_asc", "facets": {"type": ["boots"], "color": ["red"]}, "exclude": {}}
    yield {"about": "a field sorts: the kind stands first", "engine": "meilisearch", **kinds, "plan": plan}
    texts = {"mapping": _TEXTS, "plan": {"queries": ["x"], "exclude": {"brand": ["y"]}}, "question": "x"}
    yield {
        "about": "a schema; the fifth text and those after it share the last weight",
        "engine": "postgresql",
        **texts,
    }
    page = {"offset": 20, "counts": ["brand"], "group": "parent", "mapping": None, "question": "red boots"}
    plan = {"facets": {"type": ["boots"]}, "queries": ["red boots"]}
    for engine in ("opensearch", "solr", "algolia", "vespa", "meilisearch"):
        yield {"about": "a later page, with counts and variants", "engine": engine, **page, "plan": plan}


def in_python(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the Python client makes of a case; a case without a mapping is of the sample shop's."""
    mapping = CatalogueMapping.model_validate(case["mapping"] or yaml.safe_load(MAPPING.read_text(encoding="utf-8")))
    more = {name: case[name] for name in ("limit", "offset", "counts", "group") if name in case}
    made = translate(Plan.model_validate(case["plan"]), mapping, case["engine"], case["question"], **more)
    tables = [
        {"sql": each.sql, "parameters": each.parameters} if hasattr(each, "sql") else each for each in made.requests
    ]
    return {"requests": tables, "notes": list(made.notes)}


def experiments() -> str:
    """Return the experiments' file, one case a line."""
    return "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in _experiments()) + "\n]\n"


def translations() -> str:
    """Return the translations' file, one case a line: what it is about, its engine, and what that is sent."""
    told = ({"about": case["about"], "engine": case["engine"], **in_python(case)} for case in named())
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in told)


def _experiments() -> Iterator[dict[str, Any]]:
    for number in range(40):
        draw, arms = Random(number), _ARMS[number % len(_ARMS)]
        a, b = (draw.sample([f"p{each}" for each in range(12)], draw.randrange(9)) for _ in "ab")
        shopper, length = _SHOPPERS[number % len(_SHOPPERS)].format(number), draw.randrange(12)
        experiment, drafted = ("autumn", "Ørsted:2")[number % 2], interleave(a, b, length=length, seed=shopper)
        chosen = draw.sample(a, len(a) // 2)
        yield {
            "experiment": experiment, "shopper": shopper, "header": is_unit(shopper), "arms": list(arms.items()),
            "bucket": bucket(experiment, shopper), "arm": assigned(experiment, arms, shopper),
            "a": a, "b": b, "length": length, "products": list(drafted.products), "teams": list(drafted.teams),
            "chosen": chosen, "credit": drafted.credit(chosen),
        }  # fmt: skip


if __name__ == "__main__":
    EXPERIMENTS.write_text(experiments(), encoding="utf-8")
    TRANSLATIONS.write_text(translations(), encoding="utf-8")
