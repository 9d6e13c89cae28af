"""Plans of a Peakplan service, and what search engines make of them."""

from peakplan_client.client import AsyncClient, Client
from peakplan_client.errors import (
    InvalidRequestError,
    MappingError,
    PeakplanError,
    PlannerError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.plan import Answer, Part, Plan, Price
from peakplan_client.translating import Translation, translate

__all__ = [
    "Answer",
    "AsyncClient",
    "CatalogueMapping",
    "Client",
    "InvalidRequestError",
    "MappingError",
    "Part",
    "PeakplanError",
    "Plan",
    "PlannerError",
    "Price",
    "RateLimitedError",
    "Translation",
    "UnauthorizedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "translate",
]
