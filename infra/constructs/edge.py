"""Private DNS names over the cells: one name for every cell, and a shuffle-sharded subset of them for each caller."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_route53 as route53
from constructs import Construct

from infra.constructs.access import associate
from infra.constructs.names import CellNames
from infra.fleet.host_names import service_name
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import shards


class Edge(Construct):
    """A private hosted zone. `names` are the host names that accept plan requests."""

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, vpc: ec2.IVpc, cells: Sequence[CellNames]
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._cells = settings, {names.cell: names for names in cells}
        self._zone = route53.PrivateHostedZone(
            self, "Zone", vpc=vpc, zone_name=settings.network.domain, comment=f"Peakplan {settings.name}"
        )
        associate(self, self._zone, settings)
        self.names = [self._spread(service_name(settings), settings.cell_names)]
        self.names += [
            self._spread(service_name(settings, caller), cells) for caller, cells in sorted(shards(settings).items())
        ]
        for cell in settings.cell_names:  # for callers that choose another cell themselves
            self._record(service_name(settings, cell), cell)

    def _spread(self, name: str, cells: Sequence[str]) -> str:
        """Create one weighted record for each cell; a cell whose targets are all unhealthy gets no new callers."""
        for cell in cells:
            self._record(name, cell, self._settings.weights[cell])
        return name

    def _record(self, name: str, cell: str, weight: int | None = None) -> None:
        label = name.removesuffix(f".{self._settings.network.domain}")
        route53.CfnRecordSet(
            self,
            f"{label}-{cell}",
            hosted_zone_id=self._zone.hosted_zone_id,
            name=name,
            type="A",
            set_identifier=None if weight is None else cell,
            weight=weight,
            alias_target=route53.CfnRecordSet.AliasTargetProperty(
                dns_name=self._cells[cell].address,
                hosted_zone_id=self._cells[cell].zone_id,
                evaluate_target_health=True,
            ),
        )
