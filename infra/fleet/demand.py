"""The parts of a fleet file that describe its load by day, hour and event, unannounced surges, and service times."""

import re
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

# Names become part of host names, stack names and metric dimensions, so the pattern admits what all of them accept.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=32)]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def _seconds(value: object) -> object:
    """Return the seconds of "60s", "3m" or "1h", and any other value unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+)\s*(s|m|min|h)", value.strip())
    if found is None:
        raise ValueError(f"{value!r} is no duration: write 60s, 3m or 1h")
    return int(found.group(1)) * _SECONDS[found.group(2)]


Seconds = Annotated[
    int,
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^\d+\s*(s|m|min|h)$"}]}),
]


class Part(BaseModel):
    """A frozen part of the settings that knows every one of its keys: a misspelt key is an error, not a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServiceTime(Part):
    """The time that one replica is busy with one plan. Everything that sizes the fleet starts here."""

    mean_ms: float = Field(gt=0, description="Of plans that a replica decodes together: the batch's time by its size.")
    p99_ms: float = Field(gt=0, description="From the replica's first forward for a plan to its last, company or not.")
    source: str = Field(min_length=12, description="Who measured it, on what; or 'stated:' and the reasoning.")

    @model_validator(mode="after")
    def _tail_is_beyond_the_mean(self) -> Self:
        if self.p99_ms < self.mean_ms:
            raise ValueError(f"p99_ms {self.p99_ms} is below mean_ms {self.mean_ms}: a 99th percentile cannot be")
        return self

    @property
    def is_measured(self) -> bool:
        """Whether somebody measured the figure; otherwise it is stated."""
        return not self.source.startswith("stated")


class ForecastBlock(Part):
    """From `begins` on those days, until the next block begins, `share` of the ordinary day's peak is expected."""

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(min_length=1)
    begins: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="HH:MM in traffic.time_zone.")
    share: float = Field(gt=0, le=1, description="The expected share of traffic.plans_per_minute.")

    @property
    def minute(self) -> int:
        hour, minute = self.begins.split(":")
        return int(hour) * 60 + int(minute)


class Traffic(Part):
    """The load of the whole fleet on an ordinary day."""

    plans_per_minute: int = Field(gt=0, description="The plans a minute at that day's own peak.")
    forecast: tuple[ForecastBlock, ...] = Field(
        default=(),
        description="The load by day and hour, which the floor follows. Without one the floor is always the peak's.",
    )
    time_zone: str = Field(default="UTC", description="The forecast's time zone, as the tz database names it.")

    @field_validator("time_zone")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{name!r} is no time zone of the tz database, like America/New_York") from error
        return name


class Surge(Part):
    """The promise for a load that nobody announced and that grows linearly to `times` the forecast one."""

    times: float = Field(default=3, ge=1, le=100)
    within: Seconds = Field(default=60, ge=1, description="The time in which the load has grown.")
    recover: Seconds = Field(
        default=180, ge=1, description="The time from the surge's start until the model plans for 99% again."
    )
    absorb: float = Field(
        default=1, ge=1, le=20, description="How many times the load hosts in service plan for alone."
    )

    @model_validator(mode="after")
    def _absorbs_less_than_all(self) -> Self:
        if self.absorb > self.times:
            raise ValueError(f"absorb {self.absorb:g} is above times {self.times:g}: raise times, or lower absorb")
        return self


class Event(Part):
    """A known peak: capacity for `multiplier` times the ordinary traffic stands ready `lead_minutes` before it."""

    name: Name
    start: AwareDatetime
    end: AwareDatetime
    multiplier: float = Field(ge=1, le=100)
    lead_minutes: int = Field(default=60, ge=15, le=24 * 60)
    reserve_hours: float = Field(
        default=8, ge=1, le=14 * 24, description="How long before it groups that reserve ask EC2 for its capacity."
    )

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"event {self.name!r} ends ({self.end.isoformat()}) before it starts")
        if self.reserve_hours * 60 < self.lead_minutes:
            raise ValueError(
                f"event {self.name!r} reserves after its hosts start: reserve_hours: {self.lead_minutes / 60:g}"
            )
        return self
