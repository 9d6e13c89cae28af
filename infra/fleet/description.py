"""The description of one fleet: the fields of a fleet file, before any rule over several fields is checked.

Rules, and the arithmetic that they need, work on it. All other code gets `FleetSettings`, which satisfies every rule.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from infra.fleet.demand import Event, Name, Part, Surge, Traffic
from infra.fleet.network_parts import Access, Caller, Endpoint, LoadBalancer, NetworkSettings
from infra.fleet.parts import Group, MachineImage, Model, OnCall, Rollout, Slo
from infra.fleet.shared_cache import SharedCache
from infra.fleet.shopper_events import ShopperEvents
from infra.fleet.shopper_events import endpoints as events_reach
from infra.fleet.synthetic_plans import ENDPOINTS as CANARIES_REACH
from infra.fleet.synthetic_plans import SyntheticPlans

MOST_CELLS = 8  # CloudFormation takes templates of up to 1 MB, of which a cell's alarms and graphs are some 100 kB


class FleetDescription(Part):
    """The values of a fleet file, each checked by itself; rules.py checks their combinations."""

    name: Name
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    account: str | None = Field(
        default=None, pattern=r"^\d{12}$", description="The account's id. Left out, the deploying credentials' own."
    )
    availability_zones: tuple[str, ...] = Field(min_length=2, max_length=6)
    cells: int = Field(ge=1, le=MOST_CELLS, description="They are alike and stand alone; one stack has all alarms.")
    maximum_cell_instances: int = Field(default=200, ge=1, description="The size that a cell was tested at.")
    groups: tuple[Group, ...] = Field(min_length=1, max_length=3, description="The Auto Scaling groups of every cell.")
    traffic: Traffic
    slo: Slo = Slo()
    surge: Surge = Surge()
    boot_seconds: int = Field(
        default=600, ge=30, le=7200, description="The seconds from a cold launch to proven ready."
    )
    warm_start_seconds: int = Field(
        default=90, ge=5, le=7200, description="The seconds from the warm pool to proven ready."
    )
    drain_seconds: int = Field(default=30, ge=5, le=300, description="The seconds that requests in flight get.")
    events: tuple[Event, ...] = ()
    model: Model
    machine_image: MachineImage = MachineImage()
    network: NetworkSettings = NetworkSettings()
    load_balancer: LoadBalancer = LoadBalancer()
    shared_cache: SharedCache = SharedCache()
    synthetic_plans: SyntheticPlans = SyntheticPlans()
    shopper_events: ShopperEvents = ShopperEvents()
    access: Access = Access()
    rollout: Rollout = Rollout()
    callers: tuple[Caller, ...] = Field(min_length=1, description="Everyone who may call. Nobody else reaches a cell.")
    caller_shard_cells: int = Field(default=2, ge=1, description="The cells that one named caller is spread over.")
    retention_days: int = Field(
        default=30, ge=1, le=3653, description="The days that logs, access logs and flow logs are kept."
    )
    log_key: str | None = Field(
        default=None,
        pattern=r"^arn:aws:kms:[a-z0-9-]+:\d{12}:key/.+$",
        description="Your KMS key for log groups, which logs.<region>.amazonaws.com may use; AWS's own if left out.",
    )
    deletion_protection: bool = Field(
        default=True, description="To be switched off only where losing everything is fine."
    )
    on_call: OnCall = Field(description="The keys page and ticket, or one address for both.")
    runbooks: str = Field(
        default="",
        pattern=r"^(https://.+)?$",
        description="The URL where docs/runbooks can be read. Left out, each is a page of CloudWatch's dashboards.",
    )
    cost_center: str = Field(default="peakplan", description="The tag that bills are split by.")
    monthly_budget: float | None = Field(
        default=None,
        gt=0,
        description="Dollars; a ticket tells when a month will cost more. Left out: an ordinary month with its dearest "
        "event, and a fifth.",
    )
    cost_anomalies: bool = Field(
        default=False, description="A ticket for unusual cost. A member account of an organisation cannot have it."
    )

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What hosts and canaries ask of AWS; a service may be asked by several, and has one VPC endpoint."""
        canaries = CANARIES_REACH if self.synthetic_plans.enabled else ()
        return (*self.network.all_endpoints, *canaries, *events_reach(self.shopper_events))

    @property
    def interface_services(self) -> tuple[str, ...]:
        """The services with a VPC endpoint in each zone's subnet, which costs by the hour and takes an address."""
        asked = (endpoint.service for endpoint in self.endpoints if not endpoint.is_gateway)
        return tuple(dict.fromkeys(asked))

    @property
    def cell_names(self) -> tuple[str, ...]:
        return tuple(f"cell-{number}" for number in range(1, self.cells + 1))

    @property
    def weights(self) -> dict[str, int]:
        return dict(zip(self.cell_names, self.network.cell_weights or (1,) * self.cells, strict=False))

    @property
    def serving_cells(self) -> tuple[str, ...]:
        """The cells that names lead to; one of weight 0 has no callers, but Route 53 takes all 0 as equal."""
        return tuple(cell for cell, weight in self.weights.items() if weight) or self.cell_names

    def of_cell(self, cell: str) -> Self:
        """Return the description as one cell has it.

        A cell without callers has no load that anything is sized for. It has a host of each kind, and room for the host
        that takes its place.
        """
        if cell in self.serving_cells:
            return self
        small = {"minimum": 1, "maximum": 2, "reserve": False}
        groups = tuple(group.model_copy(update=small) for group in self.groups)
        traffic = self.traffic.model_copy(update={"forecast": ()})
        return self.model_copy(update={"groups": groups, "traffic": traffic, "events": ()})


@dataclass(frozen=True)
class Violation:
    """One broken rule: its place in the file, the message with its remedy, and the source of the rule."""

    field: str
    problem: str
    source: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem} [source: {self.source}]"


Rule = Callable[[FleetDescription], Iterator[Violation]]
