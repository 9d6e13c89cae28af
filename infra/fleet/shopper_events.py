"""What hosts keep of what shoppers do with plans, so that the alarms on shoppers have something to read.

Hosts take events at `POST /outcomes` into files of a bounded size and count them in metrics. With `bucket` a delivery
stream of the fleet brings every event on to a bucket before its host, and its files, are replaced.
"""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from infra.fleet.demand import Part
from infra.fleet.network_parts import Endpoint

FOLDER = "/var/lib/peakplan/outcomes"  # ami/agent/tmpfiles makes it, for the container's user alone
FILE_MEGABYTES, FILES = 64, 64
KINDS = ("plans", "outcomes", "events")  # of which each has a file that is written, and those set aside
# A delivery stream buffers until either is full (Amazon Data Firehose API reference, BufferingHints).
BUFFER_MEGABYTES, BUFFER_SECONDS = 64, 300


ArmName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9._-]{1,64}$")]
Share = Annotated[int, Field(ge=0, lt=1_000_000)]


class Experiment(Part):
    """One experiment on every host of the fleet (docs/value.md), each of which serves all of its arms."""

    name: ArmName = Field(description="The experiment's name, which is also its salt: another one deals shoppers anew.")
    arms: dict[ArmName, Share] = Field(
        min_length=2, max_length=8, description="The arms' shares, in the order in which clients have them."
    )

    @model_validator(mode="after")
    def _somebody_is_in_an_arm(self) -> Self:
        if not any(self.arms.values()):
            raise ValueError("arms: give one of them a share above 0")
        return self

    @property
    def words(self) -> str:
        return ",".join(f"{arm}={share}" for arm, share in self.arms.items())


class ShopperEvents(Part):
    """Events of `POST /outcomes` (docs/value.md). Off by default: what shoppers do is the shop's to collect or not."""

    enabled: bool = Field(
        default=False, description="Hosts keep shoppers' events and count them; the alarms on shoppers read the counts."
    )
    bucket: bool = Field(
        default=False, description="Events go to a bucket of the fleet, too; else they end with the host that has them."
    )
    days: int = Field(default=180, ge=1, le=3653, description="The days that the bucket keeps events.")
    experiment: Experiment | None = Field(
        default=None, description="An experiment over plans; who got which arm is kept with the events."
    )

    @model_validator(mode="after")
    def _the_bucket_is_of_something(self) -> Self:
        if self.bucket and not self.enabled:
            raise ValueError("bucket needs enabled: true, without which hosts keep no events that could go there")
        if self.experiment is not None and not self.enabled:
            raise ValueError("experiment needs enabled: true, without which nobody keeps who got which arm")
        return self


def key_parameter(fleet: str) -> str:
    return f"/peakplan/{fleet}/outcomes-key"


def stream_name(fleet: str) -> str:
    return f"peakplan-{fleet}-events"


def endpoints(events: ShopperEvents) -> Iterator[Endpoint]:
    """Yield what hosts reach besides what every host does."""
    if events.enabled:
        yield Endpoint(
            service="ssm",
            reason="a host reads the key by which the fleet's plans are known",
            actions=("ssm:GetParameter",),
            resources=(f"arn:aws:ssm:*:*:parameter{key_parameter('{fleet}')}",),
        )
    if events.enabled and events.bucket:
        yield Endpoint(
            service="kinesis-firehose",
            reason="a host hands shoppers' events to the fleet's delivery stream",
            actions=("firehose:PutRecordBatch",),
            resources=(f"arn:aws:firehose:*:*:deliverystream/{stream_name('{fleet}')}",),
        )
