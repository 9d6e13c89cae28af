"""The shop: searched with a question's plan and, beside it, with the shopper's words alone.

It has the products of the shop folder that is set, or else those of the client package's sample catalogue.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

from peakplan_client.errors import PeakplanError
from peakplan_client.experiments import interleave
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from service.api.models import MAX_TEXT_CHARACTERS
from service.gateway.request_queue import CapacityError
from service.planner.plan import Plan
from service.planner.planner import tell_fault

_MOST_INSIDE = 8  # searches, the running one included: each takes a second at most
FIRST_OPTIONS = 3  # that come before the others
OPTIONS_SECONDS = 1.0  # for opening the shop, waiting for one's turn and searching, together
SEARCH_SECONDS = 2.0  # for waiting for one's turn in an open shop, and both searches, together
T = TypeVar("T")


class ShopRequest(BaseModel):
    """A question and its plan, as POST /plan answered it; with the plan's id, both searches come in one list, too."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)
    plan: Plan
    request_id: str | None = Field(default=None, pattern="^[A-Za-z0-9._:-]{1,64}$")


class Hit(BaseModel):
    """A product that was found; `price` is null where its catalogue has none."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    price: float | None
    currency: str
    category: str
    snippet: str


class Drafted(Hit):
    """A product of the list that both searches made by team draft, and whose it is; "" where both began with it."""

    team: Literal["plan", "words", ""]


class ShopAnswer(BaseModel):
    """Products, best first, and what of the plan the catalogue cannot tell; `reason` says why there are none.

    `missing` are the kinds of things asked for that nothing found by the plan is said to be; `nothing`: all of them,
    and `nearest` are the shop's kinds that come nearest.
    """

    by_plan: list[Hit] = []
    by_words: list[Hit] = []
    interleaved: list[Drafted] = []
    counted: bool = Field(default=False, description="whether clicks in the one list are kept")
    notes: list[str] = []
    nothing: bool = False
    missing: list[str] = []
    nearest: list[str] = []
    reason: str | None = None
    is_fault: bool = Field(default=False, exclude=True)


class Wish(BaseModel):
    """One thing that the shopper asked for, in their words."""

    model_config = ConfigDict(from_attributes=True)

    kind: Literal["kind", "facet", "price", "rating", "offer", "exclusion"]
    says: str


class Option(Hit):
    """A product, and which wishes of the plan it meets, which it does not, and which its catalogue does not tell."""

    met: list[Wish]
    unmet: list[Wish]
    unknown: list[Wish]

    @classmethod
    def of(cls, option: Any) -> Self:
        """Return what the client package's shop found, as it is answered."""
        hit = Hit.model_validate(option).model_dump()
        judged = {name: getattr(option.judged, name) for name in ("met", "unmet", "unknown")}
        return cls.model_validate(hit | judged, from_attributes=True)


class Options(BaseModel):
    """The first options, best first; `notes` to `reason` as in a search of the shop.

    `milliseconds` is the time from the request's first byte to them.
    """

    options: list[Option] = []
    notes: list[str] = []
    nothing: bool = False
    missing: list[str] = []
    nearest: list[str] = []
    reason: str | None = None
    milliseconds: float = 0.0
    is_fault: bool = Field(default=False, exclude=True)


class More(BaseModel):
    """The options that come after the first, best first."""

    options: list[Option]


class SampleShop:
    """The shop folder's products, or without one the sample shop; it searches for one caller at a time.

    Only so many may wait for their turn: it stands beside the planner.
    """

    def __init__(
        self, cache_dir: Path, *, is_on: bool = True, url: SecretStr | None = None, folder: Path | None = None
    ) -> None:
        """`url` is a PostgreSQL with the folder's table, or with the sample shop where there is no `folder`."""
        self._cache_dir, self._url, self._folder = cache_dir, url, folder
        self._is_on = is_on
        self._turn = asyncio.Lock()
        self._inside = 0
        self._shop: Any = None
        self._is_stale = False
        self._opening: asyncio.Future[Any] | None = None

    async def open_ahead(self) -> None:
        if self._is_on:
            with contextlib.suppress(_NoAnswerError):  # the first search says why
                await self._opened()

    def renew(self) -> None:
        """Open the shop anew at the next search: its folder has been learnt again. Who waits searches the old one."""
        self._is_stale = True

    async def close(self) -> None:
        """Close what the shop keeps open between searches."""
        if self._shop is not None:
            await asyncio.to_thread(self._shop.close)

    async def search(self, asked: ShopRequest) -> ShopAnswer:
        """Search with the plan and with the words; where that is not possible, the answer says why.

        Raises CapacityError where too many wait.
        """
        try:
            return await self._in_turn(lambda search: self._search(asked, search))
        except _NoAnswerError as error:
            return ShopAnswer(reason=str(error), is_fault=error.is_fault)

    async def options(self, question: str, plan: Plan) -> AsyncGenerator[Options | More, None]:
        """Yield the first options of a plan, or why there are none, then the others.

        Closing the generator early ends the search.
        """
        end = time.monotonic() + OPTIONS_SECONDS
        try:
            async with asyncio.timeout(OPTIONS_SECONDS):
                findings, first = await self._in_turn(lambda search: self._find(question, plan, end, search.stop))
        except TimeoutError:
            yield Options(reason=f"The shop did not answer within {OPTIONS_SECONDS:g} s. Ask again.")
        except CapacityError as error:
            yield Options(reason=f"Not now: {error}. Ask again.")
        except _NoAnswerError as error:
            yield Options(reason=str(error), is_fault=error.is_fault)
        else:
            yield first
            if len(findings.found.hits) > FIRST_OPTIONS:
                others = await asyncio.to_thread(findings.options, FIRST_OPTIONS)
                yield More(options=[Option.of(each) for each in others])

    def _find(self, question: str, plan: Plan, end: float, stop: threading.Event) -> tuple[Any, Options]:
        seconds = max(end - time.monotonic(), 0.0)
        findings = self._asked(
            question, lambda shop: shop.find(plan.model_dump(), question, timeout=seconds, given_up=stop.is_set)
        )
        found = findings.found
        return findings, Options(
            options=[Option.of(each) for each in findings.options(0, FIRST_OPTIONS)],
            notes=list(found.notes),
            nothing=found.nothing,
            missing=list(found.missing),
            nearest=list(found.nearest),
        )

    def _search(self, asked: ShopRequest, search: "_Search[Any]") -> ShopAnswer:
        def both(shop: Any) -> tuple[Any, Any]:
            plan, words = asked.plan.model_dump(), asked.query
            by_plan = shop.find(plan, words, timeout=search.left, given_up=search.stop.is_set).found
            return by_plan, shop.search_raw(words, timeout=search.left)

        found, raw = self._asked(asked.query, both)
        hits = [[Hit.model_validate(hit) for hit in each.hits] for each in (found, raw)]
        return ShopAnswer(
            by_plan=hits[0],
            by_words=hits[1],
            interleaved=_drafted(*hits, seed=asked.request_id) if asked.request_id else [],
            notes=list(found.notes),
            nothing=found.nothing,
            missing=list(found.missing),
            nearest=list(found.nearest),
        )

    async def _in_turn(self, work: Callable[["_Search[T]"], T]) -> T:
        """Do work in a thread once it is its turn. Raises CapacityError where too many wait, _NoAnswerError."""
        if not self._is_on:
            raise _NoAnswerError("No shop is searched here: PEAKPLAN_SAMPLE_SHOP turns it on.")
        if self._inside >= _MOST_INSIDE:
            raise CapacityError("others search the shop", "capacity")
        self._inside += 1
        search = _Search(work)
        working = asyncio.create_task(self._run(search))
        working.add_done_callback(_heard)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            search.stop.set()
            if not search.is_running:
                working.cancel()
            raise

    async def _run(self, search: "_Search[T]") -> T:
        """Keep the turn until the thread has ended, even if the caller has left."""
        try:
            await self._opened()
            search.end = time.monotonic() + SEARCH_SECONDS
            async with self._turn:
                search.is_running = True
                return await asyncio.to_thread(search.work, search)
        finally:
            self._inside -= 1

    async def _opened(self) -> None:
        """Open the shop once for all waiting searches, even if they are cancelled. Raises _NoAnswerError."""
        if self._shop is not None and not self._is_stale and self._opening is None:
            return
        if self._opening is None:
            self._is_stale = False
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open))
            self._opening.add_done_callback(self._has_opened)
        await asyncio.shield(self._opening)

    def _open(self) -> Any:
        def opened(_: Any) -> Any:
            from peakplan_client.shop import Shop  # takes a moment to import

            url = None if self._url is None else self._url.get_secret_value()
            if self._folder is not None:
                return Shop.of_folder(self._folder, url)
            return Shop.open(self._cache_dir) if url is None else Shop.connect(url)

        return self._asked("", opened)

    def _has_opened(self, opening: asyncio.Future[Any]) -> None:
        self._opening = None
        if opening.cancelled() or opening.exception() is not None:
            self._is_stale = True  # the next search tries again
        else:
            self._shop = opening.result()

    def _asked(self, question: str, work: Callable[[Any], T]) -> T:
        try:
            return work(self._shop)
        except (PeakplanError, OSError) as error:
            raise _NoAnswerError(str(error)) from error
        except Exception as fault:  # a bug of ours, or of SQLite's, at this plan
            tell_fault(question, fault)
            raise _NoAnswerError("The shop failed at this search: the log has more.", is_fault=True) from fault


def _drafted(by_plan: list[Hit], by_words: list[Hit], *, seed: str) -> list[Drafted]:
    """Return one list of both searches by team draft; the same seed gives the same list."""
    known = {hit.id: hit for hit in (*by_plan, *by_words)}
    length = max(len(by_plan), len(by_words))
    made = interleave([hit.id for hit in by_plan], [hit.id for hit in by_words], length=length, seed=seed)
    names: dict[str, Literal["plan", "words", ""]] = {"a": "plan", "b": "words", "": ""}
    return [
        Drafted(**known[product].model_dump(), team=names[team])
        for product, team in zip(made.products, made.teams, strict=True)
    ]


class _NoAnswerError(Exception):
    """Raised where the shop gives no answer; the message says why."""

    def __init__(self, message: str, *, is_fault: bool = False) -> None:
        super().__init__(message)
        self.is_fault = is_fault


@dataclass(slots=True)
class _Search(Generic[T]):
    """Work for a thread, which ends early once `stop` is set; `end` is when its time is over."""

    work: Callable[["_Search[T]"], T]
    stop: threading.Event = field(default_factory=threading.Event)
    is_running: bool = False
    end: float = math.inf

    @property
    def left(self) -> float:
        """The seconds that are left of its time."""
        return max(self.end - time.monotonic(), 0.0)


def _heard(working: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a search whose caller has left, so that asyncio does not report it."""
    if not working.cancelled():
        working.exception()
