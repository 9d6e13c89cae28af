"""Zonal capacity reservations of one Auto Scaling group, in a resource group that its launch template names."""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_resourcegroups as resourcegroups
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.scheduled_calls import ScheduledCalls
from infra.fleet.parts import Group
from infra.fleet.reservations import OUTSIDE_EVENTS, reserved
from infra.fleet.settings import FleetSettings


class ZonalReservations(Construct):
    """A reservation in every zone, which grows and shrinks with the fleet file's events. `target` is its group's ARN.

    The template says one instance for ever, so that no deploy changes what an event has opened.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: FleetSettings,
        group: Group,
        name: str,
        schedules: scheduler.CfnScheduleGroup,
    ) -> None:
        """Create the reservations of the Auto Scaling group `name`."""
        super().__init__(scope, id)
        made = [
            ec2.CfnCapacityReservation(
                self,
                zone,
                availability_zone=zone,
                instance_type=group.instance_type,
                instance_platform="Linux/UNIX",
                instance_count=OUTSIDE_EVENTS,
                instance_match_criteria="targeted",  # nobody else's instances of this type may take it
                end_date_type="unlimited",
            )
            for zone in settings.availability_zones
        ]
        arns = [
            Stack.of(self).format_arn(
                service="ec2",
                resource="capacity-reservation",
                resource_name=reservation.ref,
                arn_format=ArnFormat.SLASH_RESOURCE_NAME,
            )
            for reservation in made
        ]
        self.target = self._group(name, arns).attr_arn
        calls = ScheduledCalls(
            self,
            "Calls",
            group=schedules,
            purpose=f"Reserves capacity of {name} for events",
            actions=["ec2:ModifyCapacityReservation"],
            resources=arns,
        )
        for event in reserved(settings, group):
            for zone, reservation in zip(settings.availability_zones, made, strict=True):
                for when, moment, count, until in (
                    ("begins", event.opens, event.instances, event.starts),
                    ("ends", event.closes, OUTSIDE_EVENTS, None),
                ):
                    calls.at(
                        moment,
                        f"{event.event}-{when}-{zone}",
                        "ec2:modifyCapacityReservation",
                        {"CapacityReservationId": reservation.ref, "InstanceCount": count},
                        until=until,
                    )

    def _group(self, name: str, arns: list[str]) -> resourcegroups.CfnGroup:
        item, parameter = (
            resourcegroups.CfnGroup.ConfigurationItemProperty,
            resourcegroups.CfnGroup.ConfigurationParameterProperty,
        )
        return resourcegroups.CfnGroup(
            self,
            "Group",
            name=name,
            description=f"Capacity reserved for {name}",
            configuration=[
                item(type="AWS::EC2::CapacityReservationPool"),
                item(
                    type="AWS::ResourceGroups::Generic",
                    parameters=[parameter(name="allowed-resource-types", values=["AWS::EC2::CapacityReservation"])],
                ),
            ],
            resources=arns,
        )
