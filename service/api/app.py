"""The application: its parts and how they are wired. `service/__main__.py` starts and stops them."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.access import Access, AllowedHosts, RefusedOrigins
from service.api.answers import ANSWER_PATH
from service.api.answers import router as answers_router
from service.api.batches import router as batches_router
from service.api.experiment import ANSWER_HEADER, SHOPPER_HEADER, Experiment
from service.api.lifecycle import DeadlineWatch, Readiness, Reloader
from service.api.middleware import JsonBody, RequestContext, replay
from service.api.models import PlanRequest
from service.api.observation import OUTCOMES_PATH, PLAN_PATH, Observer
from service.api.outcome_log import event_keeper, experiment, outcome_log
from service.api.outcomes import answer_events, read_events
from service.api.outcomes import router as outcomes_router
from service.api.page import Api, page_routes
from service.api.problems import bug_response, install_problem_handlers
from service.api.request_ids import RequestIds
from service.api.routes import JSON_PATHS, LOCAL_PATHS, METRICS_PATH, SHOP_PATH, answer_plan, operations_router, router
from service.api.services import Services
from service.api.shop import SampleShop
from service.engines.factory import make_engine, model_source
from service.engines.protocol import DegradedReason, Engine, EngineUnavailableError
from service.engines.worker.messages import ModelSource
from service.events.keeper import Sessions
from service.gateway.drain import Drain
from service.gateway.load_shedder import LoadShedder
from service.gateway.pool import ReplicaPool
from service.gateway.request_queue import CapacityError
from service.gateway.turns import Places
from service.planner.caching import CachingPlanner, PlanCache, Router
from service.planner.planner import Agreement, Planner
from service.planner.prompt import warm_up_requests
from service.planner.question import Question
from service.planner.reader.reading import Reader, ReaderError
from service.planner.redis_plan_cache import ElastiCacheTokens, RedisPlanCache
from service.planner.shop.folder import Lexicon, ShopFolder, ShopFolderError
from service.planner.spelling import use_shop
from service.planner.vocabulary import Vocabulary, VocabularyError
from service.settings import Settings
from service.settings.groups import CacheSettings
from service.telemetry.logs import error_location
from service.telemetry.metrics import EmfCollector, Metrics, Reading
from service.telemetry.traces import Tracer

logger = logging.getLogger(__name__)

_FIRST = Question.parse("red shoes")
POSTED = (*JSON_PATHS, ANSWER_PATH, OUTCOMES_PATH)
SHED_PATHS = (PLAN_PATH, ANSWER_PATH, SHOP_PATH)  # refused where more comes in than is handled


def settings_source(settings: Settings) -> ModelSource:
    """Return the model of the settings, as its folder is now."""
    return model_source(settings.engine_config)


def settings_vocabulary(settings: Settings) -> Vocabulary:
    """Read the vocabulary of the settings' model. Raises EngineUnavailableError."""
    try:
        return Vocabulary.load(settings.model_dir)
    except VocabularyError as error:
        raise EngineUnavailableError(str(error)) from error


def settings_reader(settings: Settings) -> Reader | None:
    """Read the reader of the settings' model, or the shipped one where it has none. Raises EngineUnavailableError."""
    try:
        reader = Reader.of_model(settings.model_dir)
    except ReaderError as error:
        raise EngineUnavailableError(str(error)) from error
    if reader is None:
        logger.warning(
            "the model folder has no reader: where no replica is free, a question's own words are searched for",
            extra={"folder": str(settings.model_dir)},
        )
    return reader


def replica_engine(settings: Settings, source: ModelSource, number: int) -> Engine:
    """Make replica `number` of a model, not started yet. Raises EngineUnavailableError."""
    return make_engine(settings.engine_config, source, number)


def replica_pool(settings: Settings, source: ModelSource | None = None) -> ReplicaPool:
    """Make the replicas of the settings, not started yet. Raises EngineUnavailableError."""
    source = source or settings_source(settings)
    return ReplicaPool(
        [replica_engine(settings, source, number) for number in range(settings.replica_count * settings.batch_size)],
        version=source.version,
        order=settings.queue.order,
        hang_seconds=settings.queue.hang_seconds,
        warm_up=warm_up_requests(settings.strategy, settings_vocabulary(settings), settings_reader(settings)),
        by_worth=settings.routing != "off" or settings.experiment.routes_by_worth,
    )


def wire(pool: ReplicaPool, settings: Settings, source: ModelSource | None = None) -> Services:
    """Build everything that handlers use, around one pool. A reload loads `source`, else the settings' model."""
    vocabulary, reader = settings_vocabulary(settings), settings_reader(settings)
    shops = Shops.load(settings)
    shops.use()
    if reader is not None:
        reader.read(_FIRST, vocabulary)  # so that no request waits for a library's first product
    planner, drain = Planner(pool, vocabulary, settings.strategy, reader), Drain(settings.drain_seconds)
    shared = _shared_memory(settings.cache)
    memory = PlanCache(settings.cache.entries, settings.cache.seconds)
    router = Router(settings.routing, lambda: pool.idle)
    caching = CachingPlanner(planner, lambda: pool.version, memory, shared, pool.refusal, router)
    patient = Planner(pool.patient, vocabulary, settings.strategy, reader)
    batches = _batch_planner(patient, pool, memory, router, drain)
    emf = EmfCollector(
        {"Fleet": settings.fleet, "Cell": settings.cell, "Group": settings.group, "Release": settings.release}
    )
    metrics = Metrics(
        lambda: _reading(pool, caching, planner.agreement, shared), settings.slo_ms, emf if settings.fleet else None
    )
    tracer = Tracer(settings.otlp_endpoint) if settings.otlp_endpoint else None
    secret = settings.outcomes.key.get_secret_value()
    request_ids = RequestIds(secret, cell=settings.cell)
    sessions = Sessions(secret, settings.outcomes.salt_days)
    trial = experiment(settings.experiment, sessions, shops.of_arms)
    folder = settings.shop_dir and settings.shop_dir.absolute()
    url = settings.shop_url if folder else settings.sample_shop_url
    shop = SampleShop(settings.cache_dir, is_on=settings.sample_shop, url=url, folder=folder)
    return Services(
        pool=pool,
        planner=caching,
        batches=batches,
        batch_places=Places(pool.replica_count),
        readiness=Readiness(
            *(pool, planner, drain, settings.readiness_ttl_seconds),
            settings.queue.min_replicas,
            settings.queue.lost_replica_seconds,
        ),
        drain=drain,
        load_shedder=LoadShedder(settings.queue.backlog_ms / 1000, most_bytes=settings.http.max_memory_mb * 2**20),
        metrics=metrics,
        observer=Observer(metrics, tracer),
        reloader=Reloader(
            pool,
            lambda: source or settings_source(settings),
            partial(_read_model, settings, planner, trial, shop),
            partial(replica_engine, settings),
        ),
        deadline_ms=settings.deadline_ms,
        deadline_watch=DeadlineWatch(pool, settings.deadline_ms),
        trace_seconds=settings.trace_deadline_ms / 1000,
        shared_memory=shared,
        tracer=tracer,
        outcomes=outcome_log(settings),
        events=event_keeper(settings.outcomes, sessions, request_ids, metrics),
        experiment=trial,
        request_ids=request_ids,
        shop=shop,
    )


def _batch_planner(
    planner: Planner, pool: ReplicaPool, memory: PlanCache, router: Router, drain: Drain
) -> CachingPlanner:
    """Return the planner of batches. It reads the cache of ordinary plans and writes nothing into it.

    Only questions of batches share work in progress: a shopper who asks the same does not wait for a batch.
    """

    def refusal(deadline: float | None, _length: int, _worth: float, _client: str) -> CapacityError | None:
        if drain.draining:
            return CapacityError("the service is shutting down", "engine")
        is_late = deadline is not None and deadline <= time.monotonic()
        return CapacityError("every replica was needed until it was too late", "capacity") if is_late else None

    return CachingPlanner(planner, lambda: pool.version, memory, None, refusal, router, remembers=False)


def _read_model(settings: Settings, planner: Planner, trial: Experiment | None, shop: SampleShop) -> Callable[[], None]:
    """Read the settings' vocabulary, reader and shops; return a function that adopts them. Raises EngineError."""
    vocabulary, reader = settings_vocabulary(settings), settings_reader(settings)
    shops = Shops.load(settings)

    def adopt() -> None:
        planner.vocabulary, planner.reader = vocabulary, reader
        shops.use()
        shop.renew()
        if trial is not None:
            trial.shops = shops.of_arms

    return adopt


def _shared_memory(cache: CacheSettings) -> RedisPlanCache | None:
    if cache.url is None or not cache.entries:
        return None
    credentials = None
    if cache.iam_user:
        credentials = ElastiCacheTokens(cache.iam_user, cache.iam_cache, cache.iam_region)
    return RedisPlanCache(
        cache.url.get_secret_value(),
        timeout=cache.wait_ms / 1000,
        seconds=cache.seconds,
        secret=cache.key.get_secret_value(),
        credentials=credentials,
    )


def _reading(
    pool: ReplicaPool, planner: CachingPlanner, agreement: Agreement, shared: RedisPlanCache | None
) -> Reading:
    counts, cache = pool.counts, planner.counts
    refused = sum(counts[f"refused_{reason}"] for reason in get_args(DegradedReason))
    return Reading(
        totals={
            "Admitted": counts["admitted"],
            "ReplicaRestarts": counts["restarts"],
            "CacheHits": cache["hits"] + cache["shared_hits"] + cache["joined"],
            "CacheMisses": cache["misses"],
            "SpotChecks": agreement.checked,
            "SpotChecksDiffering": agreement.differing,
            "SpotChecksExpected": agreement.expected,
        },
        asked=counts["admitted"] - counts["retried"] + refused,
        service_seconds=pool.expected_seconds,
        outstanding=pool.outstanding,
        replicas=pool.usable_count,
        model_version=pool.version,
        shared_cache_up=None if shared is None else shared.up,
    )


def create_app(services: Services, settings: Settings) -> ASGIApp:
    """Build the whole HTTP side. The pool's owner starts it before the first request and closes it after the last."""
    api = Api(
        title="Peakplan API",  # generators name packages by it: "Peakplan" made a second peakplan_client
        description="A shopper's words in, the plan that retrieval needs out.",
        version="0.1.0",
        docs_url=None,  # FastAPI's own page loads its scripts from other hosts: page.py has one that does not
        redoc_url=None,
        redirect_slashes=False,
        routes=[*page_routes()],
    )
    api.state.services = services
    routers = (router, answers_router, batches_router, operations_router, outcomes_router)
    for each in routers:
        api.include_router(each)
    install_problem_handlers(api)
    lane = FastLane(api, services)
    body = JsonBody(lane, paths=POSTED)
    access = Access(
        body,
        settings.auth,
        services.load_shedder,
        guarded=(*POSTED, METRICS_PATH),
        limited=SHED_PATHS,
        local=LOCAL_PATHS,
    )
    allowed = settings.http.allowed_origins
    origins = RefusedOrigins(_with_cors(access, allowed) if allowed else access, allowed)
    hosts = AllowedHosts(origins, settings.http.host_names, bound_to=settings.host)
    routes = (*api.routes, *(route for each in routers for route in each.routes))
    paths = {route.path for route in routes if isinstance(route, Route)}
    return RequestContext(hosts, services.observer, services.drain, services.request_ids, paths=paths)


def _with_cors(app: ASGIApp, origins: list[str]) -> ASGIApp:
    """Let web pages of these origins ask; the browser's question beforehand needs no token."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "traceparent", "tracestate", "x-request-id", SHOPPER_HEADER],
        expose_headers=["retry-after", "x-request-id", ANSWER_HEADER],
    )


_Answer = Callable[[Any, Scope, Receive, Services], Awaitable[Response]]
_LANES: dict[str, tuple[Callable[[bytes], Any], _Answer]] = {
    PLAN_PATH: (PlanRequest.model_validate_json, answer_plan),
    OUTCOMES_PATH: (read_events, answer_events),
}


class FastLane:
    """Middleware that answers valid requests for plans, and events; `app` gets the rest."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in _LANES:
            return await self._app(scope, receive, send)
        read, answer = _LANES[scope["path"]]
        body = (await receive()).get("body", b"")  # whole, as our server passes it; none where the client left
        try:
            request = read(body)
        except ValidationError:
            return await self._app(scope, replay(body, receive), send)
        response = await self._answered(answer(request, scope, receive, self._services), scope)
        return await response(scope, receive, send)

    async def _answered(self, answer: Awaitable[Response], scope: Scope) -> Response:
        try:
            return await answer
        except Exception as error:
            logger.error("a request failed", extra={"exception": error_location(error)})
            return bug_response(scope["state"]["request_id"])


@dataclass(frozen=True, slots=True)
class Shops:
    """The shop in which words are read, and those of arms that have one of their own; None for none."""

    usual: Lexicon | None
    of_arms: Mapping[str, Lexicon | None]

    @classmethod
    def load(cls, settings: Settings) -> "Shops":
        """Read the folders, each once. Raises EngineUnavailableError, which names the setting and the file."""
        read: dict[Path, Lexicon] = {}

        def folder(path: Path | None, setting: str) -> Lexicon | None:
            if path is None:
                return None
            if (known := path.resolve()) not in read:
                read[known] = _read(path, setting)
            return read[known]

        usual = folder(settings.shop_dir, "PEAKPLAN_SHOP_DIR")
        arms = settings.experiment.shop_dirs.items()
        return cls(usual, {arm: folder(path, f"PEAKPLAN_EXPERIMENT_SHOPS, arm {arm}") for arm, path in arms})

    def use(self) -> None:
        """Read words so from now on."""
        use_shop(self.usual, self.of_arms.values())


def _read(path: Path, setting: str) -> Lexicon:
    try:
        shop = ShopFolder.load(path)
    except ShopFolderError as error:
        raise EngineUnavailableError(f"{setting}: {error}") from error
    logger.info("shop", extra={"folder": str(path), "version": shop.digest, "megabytes": round(shop.size / 1e6, 1)})
    return shop.lexicon
