"""The plan: what retrieval needs to know of a shopper's question."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from service.planner.vocabulary import FACETS, INTENTS, SOURCES, VERTICALS

Mode = Literal["keyword", "conversational"]
MAX_QUERIES = 3


class Price(BaseModel):
    """Price bounds in the currency of the question; None where the shopper named no bound."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: float | None = None
    max: float | None = None


class Plan(BaseModel):
    """A validated plan; vocabularies are closed (`vocabulary.json`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode
    intent: str = Field(json_schema_extra={"enum": list(INTENTS)})
    vertical: str | None = Field(default=None, json_schema_extra={"enum": [*VERTICALS, None]})
    facets: dict[str, list[str]] = Field(default_factory=dict)
    price: Price = Price()
    queries: list[str] = Field(default_factory=list, max_length=MAX_QUERIES)
    sources: list[str] = Field(default_factory=list)

    @field_validator("intent")
    @classmethod
    def _known_intent(cls, intent: str) -> str:
        return _known(intent, INTENTS, "intent")

    @field_validator("vertical")
    @classmethod
    def _known_vertical(cls, vertical: str | None) -> str | None:
        return None if vertical is None else _known(vertical, tuple(VERTICALS), "vertical")

    @field_validator("facets")
    @classmethod
    def _known_facets(cls, facets: dict[str, list[str]]) -> dict[str, list[str]]:
        for facet, values in facets.items():
            _known(facet, FACETS, "facet")
            if not values or not all(value.strip() for value in values):
                raise ValueError(f"facet {facet!r} has no value or an empty one")
        return facets

    @field_validator("sources")
    @classmethod
    def _known_sources(cls, sources: list[str]) -> list[str]:
        if len(set(sources)) != len(sources):
            raise ValueError(f"sources repeat: {sources}")
        return [_known(source, SOURCES, "source") for source in sources]


def _known(value: str, vocabulary: tuple[str, ...], what: str) -> str:
    if value not in vocabulary:
        raise ValueError(f"unknown {what} {value!r}; one of {', '.join(vocabulary)}")
    return value
