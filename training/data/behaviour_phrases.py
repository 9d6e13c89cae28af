"""Closed phrases for training questions (prices, ratings, sort, offers), each with its meaning by construction."""

import random
from typing import TypedDict


class Facts(TypedDict, total=False):
    """The meaning of a sentence's closed phrases."""

    price: tuple[float | None, float | None, str | None]  # lower, upper, currency
    sum: tuple[float, str | None]  # a sum that a word of the skeleton makes a bound, and its currency
    rating: float
    sort: str
    offers: tuple[str, ...]


_NUMBERS = "two three four five ten twelve fifteen twenty thirty forty fifty sixty seventy eighty ninety".split()
_SPELLED = dict(zip(_NUMBERS, (2, 3, 4, 5, 10, 12, 15, 20, 30, 40, 50, 60, 70, 80, 90), strict=True))
_HUNDREDS = {"a hundred": 100, "one hundred": 100, "two hundred": 200, "three hundred": 300, "five hundred": 500,
             "a thousand": 1000, "twenty five": 25, "seventy-five": 75, "a hundred fifty": 150}  # fmt: skip
_MARKS = (
    ("${}", "USD"), ("${}", "USD"), ("${}", "USD"), ("{} dollars", "USD"), ("{} bucks", "USD"), ("{} usd", "USD"),
    ("£{}", "GBP"), ("{} quid", "GBP"), ("€{}", "EUR"), ("{}€", "EUR"), ("{} euros", "EUR"), ("{} euro", "EUR"),
    ("C${}", "CAD"), ("{} cad", "CAD"), ("A${}", "AUD"), ("{} aud", "AUD"), ("₹{}", "INR"), ("{} rupees", "INR"),
    ("{}$", "USD"), ("{} dollars", "USD"),
)  # fmt: skip
MAX_FORMS = (
    "under {}", "under {}", "below {}", "less than {}", "up to {}", "at most {}", "no more than {}", "for under {}",
    "{} or less", "for less than {}", "cheaper than {}", "max {}", "not over {}", "nothing over {}", "within {m}",
    "{} tops", "{m} max", "{} or under", "sub {m}", "not more than {}", "<{m}", "costing under {}", "priced below {}",
    "lower than {}", "{m} at most", "for {m}", "keep it under {}", "maximum {}", "that costs less than {}",
)  # fmt: skip
MIN_FORMS = ("over {}", "above {}", "more than {}", "at least {}", "starting at {}", "{m} and up", "{m}+",
             "{m} or more",             "no less than {}", "minimum {}", "upwards of {}", "from {m}")  # fmt: skip
RANGE_FORMS = ("between {} and {}", "between {m} and {m}", "{m}-{m}", "{m} to {m}", "from {m} to {m}", "{m} - {m}",
               "anywhere from {m} to {m}", "between {} to {m}", "in the {m} to {m} range",
               "more than {} but less than {}",
               "over {} and under {}", "at least {} and at most {}")  # fmt: skip
AROUND_FORMS = ("around {}", "about {}", "roughly {}", "approximately {}", "somewhere around {}", "{m} or so", "~{m}",
                "for about {}", "for around {m}", "in the neighborhood of {m}")  # fmt: skip
STARS = (
    "{} stars and up", "{} stars or more", "{}+ stars", "at least {} stars", "rated {}+", "rated {} or higher",
    "rated {} and up", "{} stars and above", "{} star and up", "minimum {} stars", "with at least {} stars",
    "with {} stars or better", "{} stars or higher", "above {} stars", "rated at least {}", "rated above {}",
    "a rating of {} or more", "{} stars minimum", "with a {}+ rating", "over {} stars",
)  # fmt: skip
SORT_WORDS = {
    "price_asc": ("cheapest", "least expensive", "most affordable", "lowest priced", "lowest price"),
    "price_desc": ("most expensive", "priciest", "highest priced"),
    "rating": ("top rated", "best rated", "highest rated", "best reviewed", "top-rated", "highly rated"),
    "newest": ("newest", "latest", "most recent"),
    "best_selling": ("best selling", "most popular", "bestselling", "best-selling", "top selling"),
}
ORDER_WORDS = {
    "price_asc": ("cheapest first", "lowest price first", "price low to high", "sort by price", "sorted by price",
                  "lowest to highest price", "low to high"),
    "price_desc": ("most expensive first", "price high to low", "highest price first", "high to low"),
    "rating": ("sort by rating", "best rated first", "sorted by rating", "highest rated first", "top rated first",
               "sort by reviews"),
    "newest": ("newest first", "sort by newest", "latest first", "sorted by date", "new arrivals"),
    "best_selling": ("best sellers", "sort by popularity", "most popular first", "by popularity", "bestsellers"),
}  # fmt: skip
OFFER_WORDS = {
    ("on_sale",): ("on sale", "at a discount", "on clearance", "half off", "{p}% off", "at least {p}% off",
                   "discounted", "on special offer", "with a discount", "{p} percent off",
                   "half price", "marked down", "bogo"),
    ("in_stock",): ("in stock", "in stock now", "available now", "ready to ship", "currently in stock"),
    ("free_shipping",): ("with free shipping", "free shipping", "free delivery", "that ship free",
                         "with free delivery"),
    ("fast_delivery",): ("by tomorrow", "with same day delivery", "next day delivery", "overnight shipping", "same day",
                         "delivered tomorrow", "two day shipping", "with fast shipping", "2 day delivery",
                         "express delivery", "that can be here by friday"),
    ("in_stock", "on_sale"): ("in stock and on sale", "on sale and in stock"),
    ("free_shipping", "fast_delivery"): ("with free next day delivery", "free same day delivery",
                                          "free 2 day shipping"),
    ("on_sale", "free_shipping"): ("on sale with free shipping", "{p}% off and free shipping"),
}  # fmt: skip


def closed_phrase(name: str, rng: random.Random, known: Facts) -> tuple[str, Facts]:
    """Return a closed phrase of a kind, and its meaning. `known` is the meaning of the sentence so far."""
    if name in ("sum", "money"):
        return _later_sum(name, rng, known)
    if name in ("max", "min", "around"):
        forms = {"max": MAX_FORMS, "min": MIN_FORMS, "around": AROUND_FORMS}[name]
        form = rng.choice(forms)
        value, bare, currency, marked = _sum(rng, must_mark="{m}" in form)
        text = form.replace("{m}", marked).replace("{}", marked if currency else bare)
        bounds = {"max": (None, value), "min": (value, None),
                  "around": (round(value * 0.8, 2), round(value * 1.2, 2))}[name]  # fmt: skip
        return text, {"price": (*bounds, currency)}
    if name == "maxall":
        return closed_phrase("max", rng, known)
    if name == "range":
        return _range(rng)
    if name == "stars":
        value = rng.choice((3, 3.5, 4, 4, 4, 4.5, 4.5, 4.2))
        return rng.choice(STARS).format(f"{value:g}"), {"rating": value}
    if name in ("sort", "order"):
        sort = rng.choice(list(SORT_WORDS))
        return rng.choice((SORT_WORDS if name == "sort" else ORDER_WORDS)[sort]), {"sort": sort}
    if name == "offer":
        offers = rng.choice([*OFFER_WORDS, *list(OFFER_WORDS)[:4], *list(OFFER_WORDS)[:4]])
        return rng.choice(OFFER_WORDS[offers]).replace("{p}", str(5 * rng.randint(2, 14))), {"offers": offers}
    if name == "orderno":
        return f"{rng.randint(100, 999)}-{rng.randint(1000, 99999)}", {}
    raise ValueError(f"no slot is called {{{name}}}")


def _sum(rng: random.Random, *, must_mark: bool = False) -> tuple[float, str, str | None, str]:
    """Return (value, as a bare number, currency or None, with its mark)."""
    roll = rng.random()
    if roll < 0.12:
        bare, spelled = rng.choice([*[item for item in _SPELLED.items() if item[1] >= 10], *_HUNDREDS.items()])
        mark, currency = rng.choice(
            (("{} dollars", "USD"), ("{} bucks", "USD"), ("{} euros", "EUR"), ("{} quid", "GBP"))
        )
        value = float(spelled)
    else:
        value = float(rng.choice((rng.randint(8, 60), 5 * rng.randint(4, 40), 50 * rng.randint(3, 40))))
        value += rng.choice((0.99, 0.5, 0.95)) if roll > 0.92 else 0
        bare = f"{value:.2f}" if value % 1 else f"{value:.0f}"
        if value >= 1000:
            if rng.random() < 0.4 and value % 100 == 0:
                bare = f"{value / 1000:g}k"
            elif rng.random() < 0.6 and value % 1 == 0:
                bare = f"{value:,.0f}"
        mark, currency = rng.choice(_MARKS)
        if bare.endswith("k") and ("₹" in mark or " " in mark):
            mark, currency = "${}", "USD"
    is_marked = must_mark or rng.random() < 0.6
    return value, bare, currency if is_marked else None, mark.format(bare)


def _later_sum(name: str, rng: random.Random, known: Facts) -> tuple[str, Facts]:
    """Return an amount by itself; the second of two is larger and in the same currency."""
    before = known.get("sum")
    if before is not None:
        value = float(round(before[0] * rng.uniform(1.2, 3)) + 1)
        mark = rng.choice([mark for mark, currency in _MARKS if currency == before[1]] or ["{}"])
        return mark.format(f"{value:g}"), {"price": (before[0], value, before[1])}
    value, bare, currency, marked = _sum(rng, must_mark=name == "money")
    return (marked if currency else bare), {"sum": (value, currency)}


def _range(rng: random.Random) -> tuple[str, Facts]:
    form = rng.choice(RANGE_FORMS)
    mark, currency = rng.choice(_MARKS[:14])
    low, high = sorted(rng.sample([5 * n for n in range(2, 60)], 2))
    is_marked = "{m}" in form or rng.random() < 0.5
    text = form
    values = (
        [low, high]
        if rng.random() < 0.85 or "but" in form or " and under" in form or "at most" in form
        else [high, low]
    )
    for value in values:
        first = min((at, slot) for slot in ("{m}", "{}") if (at := text.find(slot)) >= 0)[1]
        text = text.replace(first, mark.format(value) if is_marked else str(value), 1)
    return text, {"price": (float(low), float(high), currency if is_marked else None)}
