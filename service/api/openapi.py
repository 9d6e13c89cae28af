"""The OpenAPI document: what FastAPI derives from the routes, in the terms of the vocabulary that is served."""

import re
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from service.api.answers import event_schemas
from service.api.models import Problem
from service.api.problems import REFERENCE
from service.events.model import OwnEvent
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary

_QUESTION = "waterproof hiking boots but not leather, under $120"
_Schema = dict[str, Any]
# The groups of /docs in their order: what each says, and its paths.
_GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Plans": ("A question's plan, and how it was made.", ("/plan", "/plans", "/trace", "/vocabulary")),
    "Sample shop": ("Plans and what a search finds with them.", ("/answer",)),
    "Outcomes": ("What shoppers did with a plan.", ("/outcomes",)),
    "Health": ("For load balancers and supervisors.", ("/healthz", "/readyz")),
}


class Api(FastAPI):
    """A FastAPI whose document also has our problem documents, the vocabulary's names and the default deadline."""

    def __init__(self, **options: Any) -> None:
        super().__init__(generate_unique_id_function=_operation_id, **options)
        self._described: Vocabulary | None = None

    def openapi(self) -> _Schema:
        use = self.state.services
        if self.openapi_schema is None or self._described is not use.planner.vocabulary:  # a reload replaces it
            self.openapi_schema, self._described = None, use.planner.vocabulary
            document = super().openapi()
            schemas = document["components"]["schemas"]
            _group(document)
            for operation in (each for path in document["paths"].values() for each in path.values()):
                operation["summary"] = _summary(operation)
            _, definitions = models_json_schema([(Problem, "serialization")], ref_template=REFERENCE)
            schemas |= definitions["$defs"] | event_schemas()
            schemas.pop(OwnEvent.__name__, None)  # FastAPI lists it, though nothing refers to it: see outcomes.py
            schemas["PlanRequest"]["properties"]["deadline_ms"]["default"] = use.deadline_ms
            for name in [name for name in schemas if name.split("-")[0] in ("Plan", "Part")]:
                _name_entries(schemas[name], use.planner.vocabulary)
        return super().openapi()


def _group(document: _Schema) -> None:
    """Name the group of every operation."""
    for name, (_, paths) in _GROUPS.items():
        for operation in (each for path in paths for each in document["paths"][path].values()):
            operation["tags"] = [name]
    document["tags"] = [{"name": name, "description": says} for name, (says, _) in _GROUPS.items()]


def _summary(operation: _Schema) -> str:
    """Return what an operation does in a few words, the beginning of its description: "Plan a shopper's question"."""
    return re.split(r"[.:;]", operation["description"], maxsplit=1)[0].strip()


def _operation_id(route: APIRoute) -> str:
    return route.name


def _name_entries(schema: _Schema, vocabulary: Vocabulary) -> None:
    """Write what a vocabulary has into the schema of a plan or of a part, and an example of a plan."""
    fields = schema["properties"]
    for name in ("facets", "exclude"):
        fields[name]["propertyNames"] = {"enum": list(vocabulary.facets)}
    if "intent" in fields:
        fields["intent"]["enum"] = list(vocabulary.intents)
        fields["vertical"] = {"title": "Vertical", "enum": [*vocabulary.verticals, None], "default": None}
        fields["sources"]["items"]["enum"] = list(vocabulary.sources)
        schema["examples"] = [plan_by_rule(Conversation(Question.parse(_QUESTION)), vocabulary).model_dump()]
