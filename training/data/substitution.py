"""Conversations with other things, brands and amounts in them: labels stay copied words, so they stay true.

A model of this size learns "up to" from how rows are worded, and would otherwise learn by heart what
thirty thousand turns are about. Only values that name something change; what decides the plan, every other word, stays.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from training.data.notation import Conversation, NotationError, Turn, check, plain

Json = dict[str, Any]
# Facets whose values can stand for each other in a sentence.
NAMING: Final = ("type", "brand", "line", "model", "color", "material", "theme")
_UNCHANGED: Final = 0.3  # of conversations
_CHANGED: Final = 0.6  # of the values of any other
_MOST_WORDS: Final = 4
_AMOUNT: Final = re.compile(r"(?<![\w.,'])(?<!\d )\d{2,5}(?![\w%']|[.,]\d| \d)")
_FACTORS: Final = (0.4, 2.5)
_CENT: Final = 0.006  # half of one, and what rounding leaves


@dataclass(frozen=True, slots=True)
class Value:
    """Words to put in, and the vertical of the thing that they name, None where it is unknown."""

    text: str
    vertical: str | None = None


Pools = Mapping[tuple[str, str], Sequence[Value]]  # by language and facet


def language_of(conversation: Conversation) -> str:
    return conversation.locale.split("-")[0].lower() or "en"


def pools_of(conversations: Sequence[Conversation], products: Sequence[tuple[str, str]]) -> Pools:
    """Return what conversations of each language name by facet, and for English the products (name, vertical), too."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for conversation in conversations:
        for turn in conversation.turns:
            for facet, value in values_of(turn.plan):
                if facet in NAMING:
                    only = len(turn.plan.get("wanted", {}).get("type", ())) == 1 and not turn.plan.get("parts")
                    vertical = turn.vertical if facet == "type" and only else None
                    found.setdefault((language_of(conversation), facet), {}).setdefault(
                        plain(value), Value(plain(value), vertical)
                    )
    for name, vertical in products:
        found.setdefault(("en", "type"), {}).setdefault(name.lower(), Value(name.lower(), vertical))
    return {
        key: [value for value in values.values() if len(value.text.split()) <= _MOST_WORDS and value.text.isprintable()]
        for key, values in found.items()
    }


def values_of(plan: Json) -> Iterator[tuple[str, str]]:
    """Yield (facet, value) of everything that a plan and its parts want or refuse."""
    for wish in (plan, *plan.get("parts", ())):
        for side in ("wanted", "refused"):
            for facet, values in (wish.get(side) or {}).items():
                yield from ((facet, value) for value in values)


def substituted(conversation: Conversation, pools: Pools, rng: random.Random) -> Conversation:
    """Return the conversation with other names and amounts, the same everywhere in it; or as it is.

    It stays where a value that changed was said only as a part of another word ("pak" in "mannenpak").
    """
    if rng.random() < _UNCHANGED:
        return conversation
    names = _names(conversation, pools, rng)
    amounts = _amounts(conversation, rng)
    changed = [_Change({old: new.text for old, new in names.items()}, amounts).of(turn) for turn in conversation.turns]
    for turn in changed:
        types = turn.plan.get("wanted", {}).get("type", ())
        said = [new.vertical for new in names.values() if new.text in map(plain, types)]
        if said:  # the vertical of a thing that was put in, where the wish is one thing
            turn.vertical = said[0] if len(types) == 1 and not turn.plan.get("parts") else None
    return (
        Conversation(conversation.who, conversation.shop, conversation.locale, changed)
        if _said(changed)
        else conversation
    )


def _said(turns: Sequence[Turn]) -> bool:
    """Tell whether everything that labels name was said."""
    said = ""
    for turn in turns:
        said += f" | {plain(turn.say)}"
        try:
            check(turn.plan, said)
        except NotationError:
            return False
    return True


def _names(conversation: Conversation, pools: Pools, rng: random.Random) -> dict[str, Value]:
    """Draw other names for some of the values, none of which the conversation has."""
    said = " ".join(plain(turn.say) for turn in conversation.turns)
    old = dict.fromkeys((facet, plain(value)) for turn in conversation.turns for facet, value in values_of(turn.plan))
    drawn: dict[str, Value] = {}
    for facet, value in old:
        pool = pools.get((language_of(conversation), facet), ())
        if facet not in NAMING or len(pool) < 20 or value in drawn or rng.random() > _CHANGED:
            continue
        new = rng.choice(pool)
        if not set(new.text.split()) & set(re.findall(r"\w+", said)) and new.text not in {
            one.text for one in drawn.values()
        }:
            drawn[value] = new
    return drawn


def _amounts(conversation: Conversation, rng: random.Random) -> dict[str, str]:
    """Draw other amounts for the prices that are plain numbers, all by one factor, so that their order stays."""
    plans = [wish for turn in conversation.turns for wish in (turn.plan, *turn.plan.get("parts", ()))]
    priced = {number for wish in plans if wish.get("price") for number in _AMOUNT.findall(wish["price"]["words"])}
    named = " ".join(value for turn in conversation.turns for _, value in values_of(turn.plan))
    factor = rng.uniform(*_FACTORS)
    amounts = {}
    for number in sorted(priced - set(re.findall(r"\d+", named))):
        step = 10 if int(number) % 10 == 0 else 5 if int(number) % 5 == 0 else 1
        amounts[number] = str(max(step, round(int(number) * factor / step) * step))
    return amounts if len(set(amounts.values())) == len(amounts) else {}


class _Change:
    """One change of names and amounts, for every text of a conversation."""

    def __init__(self, names: Mapping[str, str], amounts: Mapping[str, str]) -> None:
        self._names, self._amounts = names, amounts
        longest_first = sorted(names, key=len, reverse=True)
        runs = (r"\s+".join(map(re.escape, name.split())) for name in longest_first)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(runs)})(?!\w)", re.IGNORECASE) if names else None

    def of(self, turn: Turn) -> Turn:
        """Return a turn of its own with the change."""
        plan: Json = deepcopy(turn.plan)
        for wish in (plan, *plan.get("parts", ())):
            for side in ("wanted", "refused"):
                for facet, values in (wish.get(side) or {}).items():
                    wish[side][facet] = [self.text(value) for value in values]
            if wish.get("price"):
                self._price(wish["price"])
            if "rating" in wish:
                wish["rating"]["words"] = self.text(wish["rating"]["words"])
            if "need" in wish:
                wish["need"] = self.text(wish["need"])
        return Turn(self.text(turn.say), plan, turn.vertical, turn.opinion)

    def text(self, text: str) -> str:
        text = _AMOUNT.sub(lambda found: self._amounts.get(found.group(), found.group()), text)
        return self._pattern.sub(self._named, text) if self._pattern else text

    def _named(self, found: re.Match[str]) -> str:
        old = found.group()
        new = self._names[plain(old)]
        return new.title() if old[:1].isupper() else new

    def _price(self, price: Json) -> None:
        own = _AMOUNT.findall(price["words"])
        price["words"] = self.text(price["words"])
        for bound in ("min", "max"):
            if price[bound] is not None:
                price[bound] = self._bound(price[bound], own)

    def _bound(self, value: float, own: Sequence[str]) -> float:
        """Return a bound for the changed amount that says it, or what is about it; the same where none does."""
        for number in (*own, *self._amounts):  # a bound may have been said before
            for share in (1, 0.8, 1.2):
                if number in self._amounts and abs(value - share * int(number)) < _CENT:
                    return round(share * int(self._amounts[number]), 2)
        return value
