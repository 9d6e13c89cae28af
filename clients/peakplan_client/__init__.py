"""Plans of a Peakplan service, and what search engines make of them."""

from peakplan_client.answering import Done, Event, More, Option, Options, Wish
from peakplan_client.batch import Planned, Question
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
from peakplan_client.events import EventSender
from peakplan_client.experiments import Interleaved, Trial, assigned, interleave
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.plan import Answer, Part, Plan, Price
from peakplan_client.translating import Translation, translate

__all__ = [
    "Answer",
    "AsyncClient",
    "CatalogueMapping",
    "Client",
    "Done",
    "Event",
    "EventSender",
    "Interleaved",
    "InvalidRequestError",
    "MappingError",
    "More",
    "Option",
    "Options",
    "Part",
    "PeakplanError",
    "Plan",
    "Planned",
    "PlannerError",
    "Price",
    "Question",
    "RateLimitedError",
    "Translation",
    "Trial",
    "UnauthorizedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "Wish",
    "assigned",
    "interleave",
    "translate",
]
