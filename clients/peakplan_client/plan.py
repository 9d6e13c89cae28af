"""The plan and the answer around it, as `POST /plan` gives them (version 2; plans of version 1 are read, too).

Fields that a newer service adds are ignored, so that an older client goes on working.
"""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Price(_Model):
    """Bounds, both included, in the currency that the shopper named (ISO 4217); None is no bound, or none named."""

    min: float | None = None
    max: float | None = None
    currency: str | None = None


class Rating(_Model):
    """The least rating out of five; None where the shopper named none."""

    min: float | None = None


class Part(_Model):
    """One of several things that the shopper wants, or compares."""

    facets: Mapping[str, Sequence[str]] = Field(default_factory=dict)
    exclude: Mapping[str, Sequence[str]] = Field(default_factory=dict)
    price: Price = Price()
    queries: Sequence[str] = ()


class Kind(_Model):
    """One of the shop's own categories: its id in the shop folder and its name."""

    id: str
    name: str


class Plan(Part):
    """What retrieval needs to know. `queries` go from strict to wide; with `parts` they hold one for each part.

    `kinds` are categories of the shop, best first; a service without a shop folder names none.
    """

    mode: str = "keyword"
    intent: str = "find_product"
    vertical: str | None = None
    rating: Rating = Rating()
    sort: str = "relevance"
    offers: Sequence[str] = ()
    parts: Sequence[Part] = ()
    sources: Sequence[str] = ()
    kinds: Sequence[Kind] = ()


class Answer(_Model):
    """A plan and how it came about; `reason` says why the small reader made it, where it did (`degraded`)."""

    request_id: str
    plan: Plan
    source: str = "model"
    degraded: bool = False
    reason: str | None = None
    timing_ms: Mapping[str, float] = Field(default_factory=dict)


class FieldProblem(_Model):
    """One field of a request, and what is wrong with it."""

    field: str
    detail: str


class Problem(_Model):
    """An RFC 9457 problem document."""

    title: str = ""
    status: int | None = None
    detail: str = ""
    request_id: str | None = None
    errors: Sequence[FieldProblem] = ()
