"""The application: which parts there are and how they are wired. `service/__main__.py` starts and stops them."""

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.types import ASGIApp

from service.api.middleware import JsonBody, RequestContext
from service.api.models import Problem
from service.api.page import page_routes
from service.api.problems import REFERENCE, install_problem_handlers
from service.api.readiness import Readiness
from service.api.routes import JSON_PATHS, Services, router
from service.engines.frames import ModelSource
from service.engines.replica import ReplicaEngine
from service.gateway.pool import ReplicaPool
from service.planner.planner import Planner
from service.settings import Settings


def torch_source(settings: Settings) -> ModelSource:
    """The model that the settings name, on this machine's CPU."""
    return ModelSource(
        "service.engines.torch_engine:load",
        {
            "model_dir": settings.model_dir,
            "cache_dir": settings.cache_dir,
            "dtype": settings.dtype,
            "threads": settings.threads_per_replica,
            "strategy": settings.strategy,
            "max_prompt_tokens": settings.max_prompt_tokens,
        },
    )


def replica_pool(settings: Settings, source: ModelSource | None = None) -> ReplicaPool:
    """The replicas that the settings ask for, not started yet."""
    source = source or torch_source(settings)
    count, threads = settings.replica_count, settings.threads_per_replica
    return ReplicaPool([ReplicaEngine(source, threads=threads) for _ in range(count)])


def wire(pool: ReplicaPool, settings: Settings) -> Services:
    """Everything that handlers use, around one pool."""
    planner = Planner(pool, settings.strategy)
    readiness = Readiness(pool, planner, settings.proof_seconds)
    return Services(pool, planner, readiness, settings.trace_deadline_ms / 1000)


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
    install_problem_handlers(api)
    body = JsonBody(api, paths=JSON_PATHS, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds)
    return RequestContext(body)
