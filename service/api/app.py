"""The application: which parts there are and how they are wired. `service/__main__.py` starts and stops them."""

from functools import partial
from typing import Any, get_args

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.types import ASGIApp

from service.api.access import Access
from service.api.fast_lane import FastLane
from service.api.middleware import JsonBody, RequestContext
from service.api.models import Problem
from service.api.observation import PLAN_PATH, Observer
from service.api.operations import LOCAL_PATHS, METRICS_PATH
from service.api.operations import router as operations_router
from service.api.page import page_routes
from service.api.problems import REFERENCE, install_problem_handlers
from service.api.readiness import Readiness
from service.api.reload import Reloader
from service.api.routes import JSON_PATHS, router
from service.api.services import Services
from service.api.tokens import Tokens
from service.engines.choice import make_engine, model_source
from service.engines.frames import ModelSource
from service.engines.protocol import Engine
from service.gateway.door import Door
from service.gateway.drain import Drain
from service.gateway.line import Refusal
from service.gateway.pool import ReplicaPool
from service.planner.caching import CachingPlanner
from service.planner.memory import PlanMemory
from service.planner.planner import Planner
from service.planner.redis_memory import RedisMemory
from service.settings import Settings
from service.telemetry.emf import EmfCollector
from service.telemetry.metrics import Metrics, Reading
from service.telemetry.traces import make_tracer


def settings_source(settings: Settings) -> ModelSource:
    """The model that the settings name, as its folder stands now."""
    return model_source(settings.hosted_engine, settings.model_choice)


def replica_engine(settings: Settings, source: ModelSource, number: int) -> Engine:
    """Replica `number` of a model, not started yet. Raises EngineUnavailableError."""
    return make_engine(
        settings.engine,
        source,
        number,
        threads=settings.threads_per_replica,
        strategy=settings.strategy,
        grace_seconds=settings.grace_seconds,
        triton_url=settings.triton_url,
        completions=settings.completion_servers,
    )


def replica_pool(settings: Settings, source: ModelSource | None = None) -> ReplicaPool:
    """The replicas that the settings ask for, not started yet."""
    source = source or settings_source(settings)
    return ReplicaPool(
        [replica_engine(settings, source, number) for number in range(settings.replica_count)],
        version=source.version,
        order=settings.order,
        quantile=settings.admission_quantile,
        hang_seconds=settings.hang_seconds,
    )


def wire(pool: ReplicaPool, settings: Settings, source: ModelSource | None = None) -> Services:
    """Everything that handlers use, around one pool. `source` is what a reload loads, else the settings' model."""
    planner, drain = Planner(pool, settings.strategy), Drain(settings.drain_seconds)
    shared = _shared_memory(settings)
    memory = PlanMemory(settings.cache_entries, settings.cache_seconds)
    caching = CachingPlanner(planner, lambda: pool.version, memory, shared, pool.refusal)
    emf = EmfCollector(
        {"Fleet": settings.fleet, "Cell": settings.cell, "Group": settings.group, "Release": settings.release}
    )
    metrics = Metrics(lambda: _reading(pool, caching), settings.slo_ms, emf if settings.fleet else None)
    tracer = make_tracer(settings.otlp_endpoint)
    return Services(
        pool=pool,
        planner=caching,
        readiness=Readiness(pool, planner, drain, settings.proof_seconds, settings.min_replicas),
        drain=drain,
        door=Door(settings.backlog_ms / 1000),
        metrics=metrics,
        observer=Observer(metrics, tracer, log_text=settings.log_text),
        reloader=Reloader(pool, lambda: source or settings_source(settings), partial(replica_engine, settings)),
        trace_seconds=settings.trace_deadline_ms / 1000,
        speculation="draft" if settings.strategy == "draft" else "medusa",
        shared_memory=shared,
        tracer=tracer,
    )


def _shared_memory(settings: Settings) -> RedisMemory | None:
    if settings.cache_url is None or not settings.cache_entries:
        return None
    url = settings.cache_url.get_secret_value()
    return RedisMemory(url, patience=settings.cache_wait_ms / 1000, seconds=settings.cache_seconds)


def _reading(pool: ReplicaPool, planner: CachingPlanner) -> Reading:
    counts, cache = pool.counts, planner.counts
    return Reading(
        totals={
            "Admitted": counts["admitted"],
            "ReplicaRestarts": counts["restarts"],
            "CacheHits": cache["hits"] + cache["shared_hits"] + cache["joined"],
            "CacheMisses": cache["misses"],
        },
        asked=counts["admitted"] - counts["retried"] + sum(counts[f"refused_{why}"] for why in get_args(Refusal)),
        service_seconds=pool.expected_seconds,
        outstanding=pool.outstanding,
        replicas=pool.usable_count,
        model_version=pool.version,
    )


class Api(FastAPI):
    """FastAPI, whose OpenAPI document also knows our problem documents."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _, definitions = models_json_schema([(Problem, "serialization")], ref_template=REFERENCE)
            super().openapi()["components"]["schemas"] |= definitions["$defs"]
        return super().openapi()


def create_app(services: Services, settings: Settings) -> ASGIApp:
    """The whole HTTP side. The pool's owner starts it before the first request and closes it after the last."""
    api = Api(
        title="Peakplan",
        description="A shopper's words in, the plan that retrieval needs out.",
        version="0.1.0",
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        routes=[*page_routes()],
    )
    api.state.services = services
    api.include_router(router)
    api.include_router(operations_router)
    install_problem_handlers(api)
    lane = FastLane(api, services)
    body = JsonBody(lane, paths=JSON_PATHS, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds)
    access = Access(
        body,
        tokens=Tokens(settings.tokens.get_secret_value(), settings.tokens_file),
        rate=settings.rate,
        door=services.door,
        guarded=(*JSON_PATHS, METRICS_PATH),
        limited=(PLAN_PATH,),
        local=LOCAL_PATHS,
    )
    return RequestContext(access, services.observer, services.drain)
