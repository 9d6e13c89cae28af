"""What the closed phrases of one utterance mean, in whatever language they were said."""

from typing import Final, Literal, NamedTuple, get_args

Sort = Literal["relevance", "price_asc", "price_desc", "rating", "newest", "best_selling"]
Offer = Literal["in_stock", "on_sale", "free_shipping", "fast_delivery"]
SORTS: Final[tuple[str, ...]] = get_args(Sort)
OFFERS: Final[tuple[str, ...]] = get_args(Offer)
Span = tuple[int, int]


class SpokenPrice(NamedTuple):
    """One price phrase: bounds, ISO 4217 currency where the shopper named one, and its position.

    `is_told` where words or a range say that it is a bound; a sum alone may be anything, as in "transfer 50 quid".
    """

    min: float | None
    max: float | None
    currency: str | None
    span: Span
    is_told: bool = True


class Refusal(NamedTuple):
    """A refusal: the positions of the bare values ("nike"), and of the whole phrase ("not nike")."""

    values: tuple[Span, ...]
    span: Span


class Phrases(NamedTuple):
    """The meaning of one text's closed phrases. Positions are [start, end) of its characters.

    `prices` are all price phrases in order, for each of several things may have its own; `price_min`, `price_max` and
    `currency` are what they say together. `lifted` are fields that the shopper takes back: "price", "sort", an offer,
    and facets that may be anything ("color"). `spans` are what to leave out of search queries, refusals included;
    `names` only look like refusals or offers ("not your mother's").
    """

    prices: tuple[SpokenPrice, ...] = ()
    price_min: float | None = None
    price_max: float | None = None
    currency: str | None = None
    rating_min: float | None = None
    sort: str = "relevance"
    offers: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    lifted: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    names: tuple[Span, ...] = ()
