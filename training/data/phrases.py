"""Our own phrase templates (`phrases.json`) and the small random choices made from them."""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

from training.data.examples import MarkedText

_CHOICE = re.compile(r"\{([^{}]*)\}")


@cache
def phrases() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("phrases.json").read_text(encoding="utf-8"))
    return loaded


def expand(template: str, rng: random.Random) -> str:
    """Replace each `{a|b}` by one of its alternatives."""
    return " ".join(_CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), template).split())


def split_templates(templates: list[str], split: str) -> list[str]:
    """Return the templates of a split: every sixth one belongs to dev only."""
    return [template for index, template in enumerate(templates) if (index % 6 == 5) == (split == "dev")]


def wrap(template: str, inner: MarkedText) -> MarkedText:
    """Insert a marked text where the template has X; punctuation that touches X joins its last word."""
    before, after = re.split(r"\bX\b", template, maxsplit=1)
    touching = re.match(r"[?.,!]*", after)
    punctuation = touching.group() if touching else ""
    words = (*inner.words[:-1], inner.words[-1] + punctuation)
    rest = MarkedText.plain(after[len(punctuation) :])
    return MarkedText.plain(before) + MarkedText(words, inner.spans) + rest


_SMALL = "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty".split()
_SMALL_VALUES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 30, 40, 50, 60]
_HUNDREDS = {"a hundred": 100, "one hundred": 100, "two hundred": 200, "five hundred": 500, "a thousand": 1000}
_FORMS = ("${}", "${}", "${}", "{} dollars", "{} bucks", "{}", "{} usd", "£{}", "€{}", "{}$", "{} euros")


def spoken_price(rng: random.Random, at_least: float = 0) -> tuple[str, float]:
    """Return a price as shoppers write it, and its value (above `at_least`)."""
    roll = rng.random()
    if roll < 0.08:
        word, spelled = rng.choice([*zip(_SMALL, _SMALL_VALUES, strict=True), *_HUNDREDS.items()])
        if spelled > max(at_least, 4):
            return rng.choice(("{} dollars", "{} bucks", "{}")).format(word), float(spelled)
    value = float(rng.choice([rng.randint(2, 60), 5 * rng.randint(1, 40), 50 * rng.randint(1, 40)]))
    value += at_least
    if roll > 0.9:
        value += rng.choice([0.99, 0.5, 0.95, 0.49])
    digits = f"{value:.2f}" if value % 1 else f"{value:.0f}"
    if value >= 1000 and rng.random() < 0.4:
        digits = f"{value:,.2f}" if value % 1 else f"{value:,.0f}"
    if value >= 1000 and value % 500 == 0 and rng.random() < 0.2:
        digits = f"{value / 1000:g}k"
    return rng.choice(_FORMS).format(digits), value


_NEIGHBOURS = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "wertyuioplsdfghjklkxcvbnmn", strict=True)  # the neighbouring key on the right
)


def misspell(word: str, rng: random.Random) -> str:
    """Add one typo: two letters swapped, or one dropped, doubled or replaced by its neighbour on the keyboard."""
    at = rng.randrange(1, len(word) - 1)
    slip = rng.randrange(4)
    if slip == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if slip == 1:
        return word[:at] + word[at + 1 :]
    if slip == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + _NEIGHBOURS.get(word[at], "e") + word[at + 1 :]
