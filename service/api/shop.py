"""The sample shop that the page searches: with a question's plan and, beside it, with the shopper's words alone.

The shop is the client package's. Where the package or its catalogue is missing, the answer says so.
"""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.api.models import MAX_TEXT_CHARACTERS
from service.gateway.request_queue import CapacityError
from service.planner.plan import Plan
from service.planner.planner import tell_fault

_MOST_INSIDE = 8  # searches, the running one included: each takes a second at most


class ShopRequest(BaseModel):
    """A question and its plan, as POST /plan answered it."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)
    plan: Plan


class Hit(BaseModel):
    """A product that was found; `price` in US dollars."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    price: float
    category: str
    snippet: str


class ShopAnswer(BaseModel):
    """Products, best first, and what of the plan the catalogue cannot tell; `reason` says why there are none.

    `nothing`: none found by the plan is of the kind that it names; `nearest` are the shop's kinds that come nearest.
    """

    by_plan: list[Hit] = []
    by_words: list[Hit] = []
    notes: list[str] = []
    nothing: bool = False
    nearest: list[str] = []
    reason: str | None = None
    is_fault: bool = Field(default=False, exclude=True)


class SampleShop:
    """The sample shop of the client package, opened by the first search; it searches for one caller at a time.

    Only so many may wait for their turn: it is a demonstration beside the planner.
    """

    def __init__(self, cache_dir: Path, *, is_on: bool = True) -> None:
        self._cache_dir = cache_dir
        self._is_on = is_on
        self._turn = asyncio.Lock()
        self._inside = 0
        self._shop: Any = None

    async def search(self, asked: ShopRequest) -> ShopAnswer:
        """Search with the plan and with the words; where that is not possible, the answer says why.

        Raises CapacityError where too many wait.
        """
        if not self._is_on:
            return ShopAnswer(reason="There is no sample shop here: PEAKPLAN_SAMPLE_SHOP turns it on.")
        if self._inside >= _MOST_INSIDE:
            raise CapacityError("others search the sample shop", "capacity")
        self._inside += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(self._search, asked)
        finally:
            self._inside -= 1

    def _search(self, asked: ShopRequest) -> ShopAnswer:
        try:
            errors = import_module("peakplan_client.errors")
        except ImportError:
            return ShopAnswer(reason="There is no sample shop here: the client package (clients/) is not installed.")
        try:
            self._shop = self._shop or import_module("peakplan_client.shop").Shop.open(self._cache_dir)
            found = self._shop.search_plan(asked.plan.model_dump(), asked.query)
            raw = self._shop.search_raw(asked.query)
        except (errors.PeakplanError, OSError) as error:
            return ShopAnswer(reason=str(error))
        except Exception as fault:  # a bug of ours, or of SQLite's, at this plan
            tell_fault(asked.query, fault)
            return ShopAnswer(reason="The sample shop failed at this search: the log has more.", is_fault=True)
        hits = [[Hit.model_validate(hit) for hit in each.hits] for each in (found, raw)]
        return ShopAnswer(
            by_plan=hits[0],
            by_words=hits[1],
            notes=list(found.notes),
            nothing=found.nothing,
            nearest=list(found.nearest),
        )
