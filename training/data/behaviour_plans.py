"""Plans of version 2 for training questions, and the contract that each is checked against."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from service.planner.fallback.reading.en.lists import FUNCTION_WORDS
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.en.trimming import without
from service.planner.fallback.reading.phrases import OFFERS, SORTS, Phrases
from service.planner.fallback.reading.tokens import Words
from service.planner.vocabulary import shipped_vocabulary
from training.data.behaviour_text import Piece, places, text_of
from training.data.rows import looks_conversational

Plan = dict[str, Any]
VOCABULARY: Final = shipped_vocabulary()
INTENT_SOURCES: Final = {"ask_product": ["qa", "catalog"]} | {
    key: list(intent.sources) for key, intent in VOCABULARY.intents.items() if intent.sources is not None
}
ASKED_SOURCES: Final = {"catalog": ["catalog", "qa"], "qa": ["qa", "catalog"], "reviews": ["reviews", "qa"]}
SEARCHLESS: Final = tuple(intent for intent, sources in INTENT_SOURCES.items() if not sources)
# Words of sentences that `looks_conversational` does not know.
_SAID = re.compile(
    r"\b(something|anything|will|which|why|did|has|should|show|find|looking|compare|versus|if|them|let|give|get|gimme"
    r"|never|always|keeps?|stop|which|it|this|that|these|those|buying|got|ok|instead|actually|only|thanks?|hi|hello)\b",
    re.IGNORECASE,
)
WIDE: Final = ("brand", "line", "model", "type")
MAX_QUERIES: Final = 3


def empty_plan(intent: str, mode: str, sources: Sequence[str] | None = None) -> Plan:
    """Return a plan that has nothing but its intent."""
    return {
        "mode": mode, "intent": intent, "vertical": None, "facets": {}, "exclude": {},
        "price": {"min": None, "max": None, "currency": None}, "rating": {"min": None}, "sort": "relevance",
        "offers": [], "queries": [], "parts": [],
        "sources": list(INTENT_SOURCES[intent] if sources is None else sources),
    }  # fmt: skip


def mode_of(text: str) -> str:
    """Tell keywords from a sentence to somebody."""
    return "conversational" if looks_conversational(text) or _SAID.search(text) else "keyword"


def sentence_plan(
    pieces: Sequence[Piece],
    intent: str,
    vertical: str | None,
    sources: Sequence[str] | None = None,
    mode: str | None = None,
) -> Plan:
    """Return the plan of one sentence without history, from its pieces and its closed phrases."""
    text = text_of(pieces)
    plan = empty_plan(intent, mode or mode_of(text), sources)
    if intent in SEARCHLESS:
        return plan
    if intent not in ("find_product", "compare_products", "advise", "ask_product"):
        plan["queries"] = [content(text)]
        return plan
    plan["vertical"] = vertical
    said = ENGLISH.phrases(text)
    say_closed(plan, said)
    count = max((piece.part for piece in pieces), default=0)
    if count >= 2:
        _add_parts(plan, pieces, said, count)
    else:
        plan["facets"], plan["exclude"] = facets_of(pieces)
        plan["queries"] = _queries(pieces, said, plan["mode"])
    return plan


def say_closed(plan: Plan, said: Phrases) -> None:
    """Add the closed phrases to the plan, except refusals, which are labelled."""
    plan["price"] = {"min": said.price_min, "max": said.price_max, "currency": said.currency}
    plan["rating"] = {"min": said.rating_min}
    plan["sort"], plan["offers"] = said.sort, list(said.offers)


def facets_of(pieces: Iterable[Piece]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return (wanted, refused) values by facet, in order."""
    wanted: dict[str, list[str]] = {}
    refused: dict[str, list[str]] = {}
    for piece in pieces:
        if piece.facet:
            values = (refused if piece.is_refused else wanted).setdefault(piece.facet, [])
            if piece.text not in values:
                values.append(piece.text)
    return wanted, refused


def _queries(pieces: Sequence[Piece], said: Phrases, mode: str) -> list[str]:
    kept = [piece for piece in pieces if piece.is_queried and not piece.is_refused]
    if mode == "keyword" or not kept:
        text = text_of(pieces)
        strict = without(text, _cuts(pieces, said))
        strict = strict if mode == "keyword" else content(strict or text)
    else:
        strict = " ".join(piece.text for piece in kept)
    wide = " ".join(piece.correct or piece.text for piece in kept if piece.facet in WIDE)
    corrected = strict.lower()
    for piece in kept:
        if piece.correct:
            corrected = corrected.replace(piece.text.lower(), piece.correct, 1)
    return distinct([strict, corrected, wide])


def _cuts(pieces: Sequence[Piece], said: Phrases) -> list[tuple[int, int]]:
    """Return what to cut from the query: closed phrases, and the refusals that the labels name."""
    refused = [place for piece, place in zip(pieces, places(pieces), strict=True) if piece.is_refused]
    readings = {item.span for item in said.refused}
    cuts = [span for span in said.spans if span not in readings]
    for place in refused:
        covering = [span for span in readings if span[0] <= place[0] and place[1] <= span[1]]
        cuts += covering or [place]
    return cuts


def _add_parts(plan: Plan, pieces: Sequence[Piece], said: Phrases, count: int) -> None:
    shared = [piece for piece in pieces if piece.part == 0]
    starts = _starts(pieces, count)
    for part in range(1, count + 1):
        own = [piece for piece in pieces if piece.part in (0, part)]
        wanted, refused = facets_of(own)
        query = " ".join(piece.text for piece in own if piece.is_queried and not piece.is_refused)
        price = _part_price(said, starts, part)
        plan["parts"].append({"facets": wanted, "exclude": refused, "price": price, "queries": distinct([query])})
    plan["facets"], plan["exclude"] = facets_of(shared)
    if len({str(part["price"]) for part in plan["parts"]}) > 1:
        plan["price"] = {"min": None, "max": None, "currency": None}
    plan["queries"] = distinct([query for part in plan["parts"] for query in part["queries"]])


def _starts(pieces: Sequence[Piece], count: int) -> list[int]:
    found = {piece.part: place[0] for piece, place in reversed(list(zip(pieces, places(pieces), strict=True)))}
    return [found[part] for part in range(1, count + 1)]


def _part_price(said: Phrases, starts: list[int], part: int) -> dict[str, Any]:
    """Return the price between this product and the next; a single price after the last one is for all."""
    if len(said.prices) == 1 and said.prices[0].span[0] > starts[-1]:
        price = said.prices[0] if len(starts) > 1 else None
    else:
        end = starts[part] if part < len(starts) else 1 << 30
        inside = [price for price in said.prices if starts[part - 1] <= price.span[0] < end]
        price = inside[0] if inside else None
    if price is None:
        return {"min": None, "max": None, "currency": None}
    return {"min": price.min, "max": price.max, "currency": price.currency}


def content(text: str) -> str:
    """Return the words that carry meaning; all of them where none does."""
    words = re.findall(r"[^\s,.?!;:()\"]+", text.lower())
    return " ".join(word for word in words if word not in FUNCTION_WORDS) or " ".join(words)


def distinct(queries: Iterable[str]) -> list[str]:
    """Return at most three distinct queries, in lower case."""
    return list(dict.fromkeys(" ".join(query.lower().split()) for query in queries if query.strip()))[:MAX_QUERIES]


def problems(history: Sequence[str], question: str, plan: Plan) -> list[str]:
    """Return a plan's violations of the contract of plan version 2."""
    found: list[str] = []
    if set(plan) != set(empty_plan("advise", "keyword")):
        return [f"fields are {sorted(plan)}"]
    if plan["intent"] not in INTENT_SOURCES or plan["mode"] not in ("keyword", "conversational"):
        found.append(f"intent {plan['intent']} or mode {plan['mode']} is unknown")
    if plan["vertical"] is not None and plan["vertical"] not in VOCABULARY.verticals:
        found.append(f"vertical {plan['vertical']} is unknown")
    if plan["sort"] not in SORTS or not set(plan["offers"]) <= set(OFFERS):
        found.append("sort or offers are unknown")
    if not set(plan["sources"]) <= set(VOCABULARY.sources) or len(set(plan["sources"])) != len(plan["sources"]):
        found.append(f"sources {plan['sources']} are unknown")
    searches = plan["intent"] not in SEARCHLESS
    if bool(plan["queries"]) != searches or bool(plan["sources"]) != searches:
        found.append("queries and sources are there exactly where something is searched")
    if len(plan["queries"]) > MAX_QUERIES or len(set(plan["queries"])) != len(plan["queries"]):
        found.append("queries are one to three, each once")
    if len(plan["parts"]) not in (0, 2, 3, 4):
        found.append(f"{len(plan['parts'])} parts")
    rating = plan["rating"]["min"]
    if rating is not None and not 0 < rating <= 5:
        found.append(f"rating {rating}")
    texts = [Words(text).texts for text in (*history, question)]
    for item in (plan, *plan["parts"]):
        found += _item_problems(texts, item)
    every = plan["queries"] + [query for part in plan["parts"] for query in part["queries"]]
    if any("{" in query or not query.strip() for query in every):
        found.append("a query is empty or holds a slot")
    for value in (value for item in (plan, *plan["parts"]) for values in item["exclude"].values() for value in values):
        if any(_holds(Words(query).texts, Words(value).texts) for query in _queries_refusing(plan, value)):
            found.append(f"refused {value!r} is searched for")
    return found


def _queries_refusing(plan: Plan, value: str) -> list[str]:
    """Return the queries for a refused value: those of one part where the part refuses it."""
    parts = [part for part in plan["parts"] if any(value in values for values in part["exclude"].values())]
    if parts and len(parts) < len(plan["parts"]):
        return [query for part in parts for query in part["queries"]]
    return [*plan["queries"], *(query for part in plan["parts"] for query in part["queries"])]


def _item_problems(texts: list[list[str]], item: Plan) -> list[str]:
    found = []
    for name in ("facets", "exclude"):
        for facet, values in item[name].items():
            if facet not in VOCABULARY.facets or not values:
                found.append(f"{name} {facet} is unknown or empty")
            for value in values:
                if not any(_holds(text, Words(value).texts) for text in texts):
                    found.append(f"{value!r} stands nowhere in the shopper's words")
                if name == "exclude" and value in item["facets"].get(facet, []):
                    found.append(f"{value!r} is wanted and refused")
    price = item["price"]
    if price["min"] is not None and price["max"] is not None and price["min"] > price["max"]:
        found.append(f"price {price}")
    if price["currency"] is not None and not re.fullmatch("[A-Z]{3}", price["currency"]):
        found.append(f"currency {price['currency']}")
    return found


def _holds(text: list[str], value: list[str]) -> bool:
    return any(text[at : at + len(value)] == value for at in range(len(text) - len(value) + 1)) if value else False
