"""The plan, version 2: what retrieval needs to know of a shopper's question.

These models check the shape. That intents, verticals, facets and sources are known is a matter of the model folder's
vocabulary, from which alone plans take them.
"""

import operator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Mode = Literal["keyword", "conversational"]
Sort = Literal["relevance", "price_asc", "price_desc", "rating", "newest", "best_selling"]
Offer = Literal["in_stock", "on_sale", "free_shipping", "fast_delivery"]
VERSION = 2  # of the plan's shape; logs and traces name it
MAX_QUERIES = 3
MAX_PARTS = 4
MAX_KINDS = 3


def _distinct(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError(f"values repeat: {values}")
    return values


def _said(values: list[str]) -> list[str]:
    if not values or not all(value.strip() for value in values):
        raise ValueError("no value, or an empty one")
    return _distinct(values)


Facets = dict[str, Annotated[list[str], AfterValidator(_said)]]
Queries = Annotated[list[str], AfterValidator(_distinct), Field(max_length=MAX_QUERIES)]


class _Shape(BaseModel):
    # Every field is in every answer: to a reader of the OpenAPI document none of them is optional.
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


class Price(_Shape):
    """Price bounds, and the currency where the shopper named one (ISO 4217)."""

    min: float | None = Field(default=None, ge=0)
    max: float | None = Field(default=None, ge=0)
    currency: str | None = Field(default=None, pattern="^[A-Z]{3}$")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Rating(_Shape):
    """The least customer rating, out of five stars."""

    min: float | None = Field(default=None, gt=0, le=5)


class Part(_Shape):
    """One of several things that the shopper wants or compares; what holds for all of them stands in each."""

    facets: Facets = Field(default_factory=dict)
    exclude: Facets = Field(default_factory=dict)
    price: Price = Price()
    queries: Queries = Field(default_factory=list)


class Kind(_Shape):
    """One of the shop's own categories, by its id in the shop folder and its name."""

    id: str
    name: str


class Plan(_Shape):
    """A plan. `facets` are wanted and `exclude` refused values by facet, all of them the shopper's own words.

    With `parts` (two to four), `facets` and `exclude` are what holds for all of them, and `queries` has one for each.
    `kinds` are categories of the shop whose folder the service reads, best first; without one, or where none is sure,
    the field is absent.
    """

    mode: Mode
    intent: str
    vertical: str | None = None
    facets: Facets = Field(default_factory=dict)
    exclude: Facets = Field(default_factory=dict)
    price: Price = Price()
    rating: Rating = Rating()
    sort: Sort = "relevance"
    offers: Annotated[list[Offer], AfterValidator(_distinct)] = Field(default_factory=list)
    queries: Annotated[list[str], AfterValidator(_distinct), Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    parts: list[Part] = Field(default_factory=list, max_length=MAX_PARTS)
    sources: Annotated[list[str], AfterValidator(_distinct)] = Field(default_factory=list)
    kinds: list[Kind] = Field(default_factory=list, max_length=MAX_KINDS, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.parts) == 1:
            raise ValueError("one part is no part: there are none, or two to four")
        if not self.parts and len(self.queries) > MAX_QUERIES:
            raise ValueError(f"{len(self.queries)} queries; at most {MAX_QUERIES} without parts")
        return self
