"""Events as OpenSearch's User Behavior Insights (UBI) names them, version 1.3.0 of its event schema.

A shop that has UBI sends what it has, with a plan's `request_id` as `query_id`. Three action names, and what they need
under `event_attributes`, are ours: `first_shown`, `came_back` and `exposure`, with `event_id` to send one again safely.
UBI lets an action have any name: those of the shop's own that the operator named are events as well (`OwnEvent`).
Source: github.com/o19s/ubi, schema/1.3.0/event.schema.json; OpenSearch's events-mapping.json names the rest.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

MOST_EVENTS = 64  # of one request
ActionName = Literal[
    "impression",
    "first_shown",
    "click",
    "click_through",
    "add_to_cart",
    "purchase",
    "came_back",
    "exposure",
    "view",
    "watch",
]
ACTIONS = get_args(ActionName)
_TIME = (
    r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?$"
)
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


def _whole(value: object) -> object:
    """Accept 3.0 as a whole number: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, StringConstraints(max_length=1024)]
Id = Annotated[str, StringConstraints(max_length=100)]
Whole = Annotated[int, Field(ge=-(2**31), lt=2**31), BeforeValidator(_whole)]
ObjectId = Annotated[str, StringConstraints(max_length=256)] | Whole
Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
ArmName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9._-]{1,64}$")]


class Item(BaseModel):
    """The product that the shopper saw or chose. Only its ids are kept, and its words where the operator wants them.

    UBI's own collector puts whatever a shop knows of a product beside these: that is accepted, and never kept.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    object_id: ObjectId
    object_id_type: Id | None = None
    object_id_field: Id | None = None
    internal_id: ObjectId | None = None
    name: Text | None = None
    description: Text | None = None
    object_detail: dict[str, Any] | None = Field(default=None, description="Accepted, and never kept.")


class Point(BaseModel):
    """A place on the screen."""

    model_config = _STRICT

    x: float = Field(allow_inf_nan=False)
    y: float = Field(allow_inf_nan=False)


class Position(BaseModel):
    """Where on the page it was: `ordinal` counts results from 1."""

    model_config = _STRICT

    ordinal: Whole | None = None
    xy: Point | None = None
    x: float | None = Field(default=None, allow_inf_nan=False)
    y: float | None = Field(default=None, allow_inf_nan=False)
    page_depth: Whole | None = None
    scroll_depth: Whole | None = None
    trail: Text | None = None


class EventAttributes(BaseModel):
    """What belongs to some events alone."""

    model_config = _STRICT

    object: Item | None = None
    position: Position | None = None
    milliseconds: Annotated[float, Field(ge=0, le=3_600_000, allow_inf_nan=False)] | None = Field(
        default=None, description="first_shown: from the shopper's question to the first answer on the screen."
    )
    results: Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(_whole)] | None = Field(
        default=None, description="first_shown: how many products the search found; 0 is a search without result."
    )
    value: Amount | None = Field(default=None, description="purchase: what was paid for this product.")
    currency: Annotated[str, StringConstraints(pattern="^[A-Z]{3}$")] | None = Field(
        default=None, description="purchase: ISO 4217."
    )
    experiment: ArmName | None = Field(default=None, description="exposure and team: the experiment's name.")
    arm: ArmName | None = Field(default=None, description="exposure: what the shopper got.")
    team: ArmName | None = Field(
        default=None, description="click, of a list made of two searches: whose product it is; needs experiment."
    )


class Happened(BaseModel):
    """What every event has."""

    model_config = _STRICT

    action_name: str
    query_id: str = Field(pattern="^[A-Za-z0-9._:-]{1,64}$", description="The plan's request_id.")
    event_id: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = Field(
        default=None, description="The same event sent again has the same one; without it, the same content."
    )
    timestamp: Annotated[str, StringConstraints(pattern=_TIME)] | None = Field(
        default=None, description="When it happened, ISO 8601; now where it is left out."
    )
    application: Id | None = None
    client_id: Id | None = Field(default=None, description="The shopper's browser; kept as a hash.")
    session_id: Id | None = Field(default=None, description="Kept as a hash.")
    user_id: Id | None = Field(default=None, description="Stands for client_id where there is none.")
    message_type: Id | None = None
    message: Text | None = Field(default=None, description="Kept with PEAKPLAN_OUTCOMES_TEXT alone.")
    user_query: str | None = Field(default=None, description="Kept with PEAKPLAN_OUTCOMES_TEXT alone.")
    event_attributes: EventAttributes = EventAttributes()


class Event(Happened):
    """Something that happened after a plan."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "action_name": "purchase",
                    "query_id": "48bf42ea6d3ea9e6a247eb2a042389b2",
                    "client_id": "5e3b2a1c-8b7d-4f2e-a3d4-c9b2e1f3a4b5",
                    "timestamp": "2026-11-23T15:00:00Z",
                    "event_attributes": {
                        "object": {"object_id": "B07"},
                        "position": {"ordinal": 2},
                        "value": 59.9,
                        "currency": "EUR",
                    },
                }
            ]
        },
    )

    action_name: ActionName = Field(
        description="impression: a result was shown; first_shown: the first answer was; came_back: the shopper came "
        "again on a later day; exposure: the shopper got an arm of the shop's own experiment. The others are UBI's; "
        "actions of the shop's own are taken where PEAKPLAN_OUTCOMES_ACTIONS names them."
    )


class OwnEvent(Happened):
    """An action of the shop's own, which PEAKPLAN_OUTCOMES_ACTIONS names; whatever else it has is not kept."""

    action_name: Annotated[str, StringConstraints(min_length=1, max_length=100)]

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_not_ours(cls, given: object) -> object:
        return _within(cls, given) if isinstance(given, Mapping) else given


_PARTS: dict[str, type[BaseModel]] = {"event_attributes": EventAttributes, "position": Position, "object": Item}


def _within(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of this the model knows; an object without an id is none of ours."""
    known = {name: value for name, value in given.items() if name in model.model_fields}
    for name, part in _PARTS.items():
        if isinstance(known.get(name), Mapping):
            known[name] = _within(part, known[name])
    if isinstance(known.get("object"), Mapping) and "object_id" not in known["object"]:
        del known["object"]
    return known
