"""Conversations with their plans, in the compact notation that writers and annotators use.

    = teenager, texting | fashion | en-US
    > need a hoodie for school, smth baggy n black
    find; type:hoodie; occasion:school; feature:baggy; color:black; @apparel-accessories
    > ngl grey is cuter
    find; -black; color:grey
    > not gonna spend more than 40 btw
    find; price <=40 "not gonna spend more than 40"

A label names the intent, then what its turn changes; the wish carries over from the turn before. `Conversation.rows`
gives the whole wish after each turn, in the layout of the conversations that other tools check and score.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

INTENTS = {
    "find": "find_product", "compare": "compare_products", "advise": "advise", "ask": "ask_product",
    "ask_opinion": "ask_product", "order_status": "order_status", "order_change": "order_change",
    "returns": "returns_refunds", "billing": "payment_billing", "policy": "policy_help", "account": "account",
    "agent": "contact_agent", "feedback": "feedback", "chat": "small_talk", "off": "out_of_scope",
}  # fmt: skip
FACETS = frozenset(
    """type brand line model color material size count audience shape condition occasion theme origin time
    feature""".split()
)
SORTS = frozenset(("price_asc", "price_desc", "rating", "newest", "best_selling"))
OFFERS = frozenset(("in_stock", "on_sale", "free_shipping", "fast_delivery"))
VERTICALS = frozenset(
    """apparel-accessories arts-entertainment animals-pet-supplies business-industrial baby-toddler cameras-optics
    electronics food-beverages-tobacco furniture gift-cards hardware health-beauty home-garden luggage-bags media
    office-supplies religious-ceremonial sporting-goods software toys-games vehicles-parts none""".split()
)
MOST_PARTS = 4
_AROUND = 0.2  # "around 50" is 40 to 60
_PRICE = re.compile(
    r"price\s+(?:(?P<compare><=|>=|~)\s*(?P<amount>[\d.]+)|(?P<low>[\d.]+)\s*\.\.\s*(?P<high>[\d.]+))"
    r'\s*(?P<currency>[A-Z]{3})?\s*"(?P<words>[^"]+)"'
)
_RATING = re.compile(r'rating\s+(?P<least>[\d.]+)\s*"(?P<words>[^"]+)"')
_NEED = re.compile(r'need\s+"(?P<words>[^"]+)"')
_QUOTED = re.compile(r"(?:part )?(?:price|rating|need)\b")
_ITEM = re.compile(r"(?P<refused>!?)(?P<facet>[a-z]+):(?P<span>.+)")


class NotationError(ValueError):
    """Raised for a line that is not in the notation; the message says what is wrong."""


@dataclass(slots=True)
class Turn:
    """What the shopper said, the whole plan after it, and the vertical of the wish."""

    say: str
    plan: dict[str, Any]
    vertical: str | None = None  # a slug, "none", or None where nobody said
    opinion: bool | None = None  # whether reviews answer its question first; None where nobody said


@dataclass(slots=True)
class Conversation:
    """One shopper's turns, oldest first."""

    who: str
    shop: str
    locale: str
    turns: list[Turn] = field(default_factory=list)


@lru_cache(1 << 16)
def plain(text: str) -> str:
    """Fold case, white space and apostrophes: how spans are compared with what was said."""
    return re.sub(r"\s+", " ", text.lower().replace("’", "'")).strip()


def read(path: Path) -> tuple[list[Conversation], list[str]]:
    """Return the conversations of a file and its faults; a conversation with a fault is left out."""
    return read_text(path.read_text(encoding="utf-8"), path.name)


def read_text(text: str, name: str) -> tuple[list[Conversation], list[str]]:
    """Return conversations and faults of a text in the notation; `name` is for the faults."""
    kept: list[Conversation] = []
    faults: list[str] = []
    for number, block in _blocks(text):
        try:
            kept.append(parse(block, number))
        except NotationError as error:
            faults.append(f"{name}:{error}")
    return kept, faults


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, lines) of each conversation."""
    block: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("= "):
            if block:
                yield first, block
            block, first = [], number
        if line.strip() and not line.startswith("#"):
            block.append(line.strip())
    if block:
        yield first, block


def parse(lines: list[str], number: int = 1) -> Conversation:
    """Parse one conversation. Raises NotationError, with the number of the line, for what cannot be."""
    head = [part.strip() for part in lines[0].removeprefix("= ").split("|")]
    if not lines[0].startswith("= ") or len(head) != 3:
        raise NotationError(f"{number}: a conversation starts with '= who | shop | locale': {lines[0][:60]}")
    who, shop, locale = head
    conversation = Conversation(who, shop, locale)
    wish: dict[str, Any] = {}
    vertical: str | None = None
    said = ""
    for at in range(1, len(lines), 2):
        say = lines[at]
        if not say.startswith("> ") or at + 1 >= len(lines) or lines[at + 1].startswith(("> ", "= ")):
            raise NotationError(f"{number}+{at}: expected '> words' and a label under it: {say[:60]}")
        said += " | " + plain(say[2:])
        try:
            intent, wish, vertical = _apply(lines[at + 1], wish, vertical)
            plan = {"intent": INTENTS[intent], **_copied({key: value for key, value in wish.items() if value})}
            check(plan, said)
        except NotationError as error:
            raise NotationError(f"{number}+{at}: {say[2:60]!r}: {error}") from error
        conversation.turns.append(Turn(say[2:].strip(), plan, vertical, intent == "ask_opinion"))
    if not conversation.turns:
        raise NotationError(f"{number}: no turns")
    return conversation


def _apply(label: str, before: dict[str, Any], vertical: str | None) -> tuple[str, dict[str, Any], str | None]:
    """Return intent, wish and vertical after a label."""
    intent, *changes = [change.strip() for change in _split(label, ";")]
    if intent not in INTENTS:
        raise NotationError(f"no intent: {intent!r}; one of {', '.join(INTENTS)}")
    wish = _copied(before)
    if any(change.startswith("part ") for change in changes):
        wish.pop("parts", None)
    for change in changes:
        if change == "new":
            wish, vertical = {}, None
        elif change.startswith("@"):
            vertical = change[1:]
            if vertical not in VERTICALS:
                raise NotationError(f"no vertical: {change}")
        elif change.startswith("part "):
            part: dict[str, Any] = {}
            for item in _split(change[5:], "&"):
                _change(part, item.strip())
            wish.setdefault("parts", []).append(part)
        elif change:
            _change(wish, change)
    return intent, wish, vertical


def _copied(value: Any) -> Any:
    """Copy what JSON can say, in a fifth of deepcopy's time: a wish is copied twice for each turn."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that stands outside the quoted words of a price, a rating or a need."""
    pieces: list[str] = []
    for piece in text.split(mark):
        is_open = pieces and _QUOTED.match(pieces[-1].strip()) and pieces[-1].count('"') % 2
        if is_open:
            pieces[-1] += mark + piece
        else:
            pieces.append(piece)
    return pieces


def _change(wish: dict[str, Any], change: str) -> None:
    kind = change.split(" ")[0]
    if kind in ("price", "rating", "need", "sort", "offer"):
        _set(wish, kind, change)
    elif change.startswith("-"):
        _remove(wish, change[1:].strip())
    elif (item := _ITEM.fullmatch(change)) and item["facet"] in FACETS:
        side, other = ("refused", "wanted") if item["refused"] else ("wanted", "refused")
        span = item["span"].strip()
        _drop(wish, other, span)
        spans = wish.setdefault(side, {}).setdefault(item["facet"], [])
        if span not in spans:
            spans.append(span)
    else:
        raise NotationError(f"no change of the notation: {change!r}")


def _set(wish: dict[str, Any], kind: str, change: str) -> None:
    value = change[len(kind) :].strip()
    if kind == "price" and (price := _PRICE.fullmatch(change)):
        wish["price"] = _price(price)
    elif kind == "rating" and (rating := _RATING.fullmatch(change)):
        wish["rating"] = {"words": rating["words"], "min": _number(rating["least"])}
    elif kind == "need" and (need := _NEED.fullmatch(change)):
        wish["need"] = need["words"]
    elif kind == "sort" and value in SORTS:
        wish["sort"] = value
    elif kind == "offer" and value in OFFERS:
        wish["offers"] = sorted({*wish.get("offers", ()), value})
    else:
        raise NotationError(f"cannot read {change!r}")


def _price(price: re.Match[str]) -> dict[str, Any]:
    low: float | None = None
    high: float | None = None
    if price["compare"] == "~":
        amount = _number(price["amount"])
        low, high = round(amount * (1 - _AROUND), 2), round(amount * (1 + _AROUND), 2)
    elif price["compare"]:
        low, high = (None, _number(price["amount"])) if price["compare"] == "<=" else (_number(price["amount"]), None)
    else:
        low, high = sorted((_number(price["low"]), _number(price["high"])))
    return {"words": price["words"], "min": low, "max": high, "currency": price["currency"]}


def _remove(wish: dict[str, Any], what: str) -> None:
    """Take a field, all spans of a facet ("color:*") or one span out. Raises NotationError where nothing was there."""
    kind, _, value = what.partition(" ")
    if what in ("price", "rating", "need", "sort", "parts", "offers"):
        if wish.pop(what, None) is None:
            raise NotationError(f"nothing to remove: {what}")
    elif kind == "offer" and value in wish.get("offers", ()):
        wish["offers"].remove(value)
    elif what.removeprefix("!").endswith(":*") and (facet := what.removeprefix("!")[:-2]) in FACETS:
        side = "refused" if what.startswith("!") else "wanted"
        if wish.get(side, {}).pop(facet, None) is None:
            raise NotationError(f"no {side} {facet} to remove")
    else:
        span = re.sub(r"^!?[a-z]+:", "", what)
        if not (_drop(wish, "wanted", span) + _drop(wish, "refused", span)):
            raise NotationError(f"no span to remove: {span!r}")


def _drop(wish: dict[str, Any], side: str, span: str) -> int:
    dropped = 0
    for facet, spans in list(wish.get(side, {}).items()):
        kept = [other for other in spans if plain(other) != plain(span)]
        dropped += len(spans) - len(kept)
        if kept:
            wish[side][facet] = kept
        else:
            del wish[side][facet]
    if side in wish and not wish[side]:
        del wish[side]
    return dropped


def check(plan: dict[str, Any], said: str) -> None:
    """Raise NotationError where a plan cannot be one of what was said (`plain` text)."""
    for side in ("wanted", "refused"):
        for spans in plan.get(side, {}).values():
            for span in spans:
                _require(plain(span) in said, f"nobody said {span!r}")
    both = {plain(s) for spans in plan.get("wanted", {}).values() for s in spans} & {
        plain(s) for spans in plan.get("refused", {}).values() for s in spans
    }
    _require(not both, f"wanted and refused: {', '.join(sorted(both))}")
    for key in ("price", "rating"):
        if key in plan:
            _require(plain(plan[key]["words"]) in said, f"nobody said {plan[key]['words']!r}")
    if "rating" in plan:
        _require(0 < plan["rating"]["min"] <= 5, "a rating is of five stars")
    if "need" in plan:
        _require(plain(plan["need"]) in said, f"nobody said {plan['need']!r}")
    parts = plan.get("parts", [])
    _require(not parts or 2 <= len(parts) <= MOST_PARTS, f"{len(parts)} parts; two to {MOST_PARTS}")
    for part in parts:
        check(part, said)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotationError(otherwise)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise NotationError(f"no number: {text!r}") from error
    return int(value) if value == int(value) else value


def main() -> None:
    """Check files in the notation: `python -m training.data.notation FILE…`."""
    import sys

    conversations = turns = 0
    faults: list[str] = []
    for path in map(Path, sys.argv[1:]):
        kept, wrong = read(path)
        conversations += len(kept)
        turns += sum(len(conversation.turns) for conversation in kept)
        faults += wrong
    print("\n".join(faults))
    print(f"{conversations} conversations, {turns} turns kept; {len(faults)} conversations with faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
