"""What a group has at a given time: the scheduled minimum of its size, and the capacity that EC2 promises for events.

The minimum is a forecast by day and hour, with known events above it. On-Demand Capacity Reservations, one for each
event, cell, group and zone, are asked for `reserve_hours` before the event, paid for from then on, and end with it.
They are open: instances of their type that already run in the zone count, and those that find no room run On-Demand all
the same. Source: Amazon EC2 user guide, Capacity Reservations.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from infra.fleet import sizing
from infra.fleet.demand import DAYS
from infra.fleet.description import FleetDescription
from infra.fleet.parts import PART_TAG, TAG, Group
from infra.fleet.policies import ScheduledFloor
from infra.fleet.settings import FleetSettings

_MINUTES_A_DAY = 24 * 60
_MINUTES_A_WEEK = 7 * _MINUTES_A_DAY


@dataclass(frozen=True)
class Calendar:
    """The floors of one group over time.

    `weekly` holds minutes since Monday 0:00 in `time_zone` and the floor from then on; `events` holds begin, end, floor
    and name.
    """

    weekly: tuple[tuple[int, int], ...]
    events: tuple[tuple[datetime, datetime, int, str], ...]
    time_zone: str

    @classmethod
    def of_group(cls, settings: FleetSettings, group: Group) -> Self:
        """Return the calendar of `group`.

        Floors rise one cold boot before the load is forecast to rise, and fall when it is forecast to fall.
        """
        blocks = sorted(
            (DAYS.index(day) * _MINUTES_A_DAY + block.minute, sizing.floor_for(settings, group, block.share))
            for block in settings.traffic.forecast
            for day in block.days
        )
        early = -(-settings.boot_seconds // 60)
        weekly = []
        for index, (minute, floor) in enumerate(blocks):
            before = blocks[index - 1][1]
            if floor != before:
                weekly.append(((minute - early * (floor > before)) % _MINUTES_A_WEEK, floor))
        if not weekly:
            weekly = [(0, max([group.minimum, *(floor for _, floor in blocks)]))]
        events = tuple(
            (
                event.start - timedelta(minutes=event.lead_minutes),
                event.end,
                sizing.instances_wanted(settings, group, event.multiplier),
                event.name,
            )
            for event in settings.events
        )
        return cls(tuple(sorted(weekly)), events, settings.traffic.time_zone)

    def floor_at(self, time: datetime) -> int:
        """Return the floor in force at `time`, which is aware of its zone."""
        return max([self._weekly_at(time), *(floor for due, end, floor, _ in self.events if due <= time < end)])

    @property
    def highest(self) -> int:
        return max([floor for _, floor in self.weekly] + [floor for _, _, floor, _ in self.events])

    def actions(self) -> Iterator[ScheduledFloor]:
        """Yield Auto Scaling's scheduled actions, one for each moment: it refuses two of a group at the same time.

        The last one to run wins, so the forecast's actions are suspended while an event sets the floor. They are named
        after the event that they lead to, so that the passing of another renames none: CloudFormation creates before it
        deletes, and a renamed action would ask for a time that its former self still holds. What comes last is yielded
        first: a new event moves the actions after it out of the way of those before it.
        """
        moments = {end: f"{name}-ends" for _, end, _, name in self.events}
        moments |= {due: f"{name}-begins" for due, _, _, name in self.events}
        if len(self.weekly) > 1:
            for starts, ends, leads_to in reversed(list(self._between_events())):
                yield from self._weekly_actions(starts, ends, leads_to)
        for moment in sorted(moments, reverse=True):
            yield ScheduledFloor(moments[moment], self.floor_at(moment), at=moment)

    def _weekly_actions(
        self, starts: datetime | None, ends: datetime | None, leads_to: str
    ) -> Iterator[ScheduledFloor]:
        for minute, days, floor in self._weekly_times():
            hour, past = divmod(minute, 60)
            cron = f"{past} {hour} * * {','.join(DAYS[day].upper() for day in days)}"
            first = self._first_after(starts, minute, days) if starts else None
            if first is None or ends is None or first < ends:
                name = f"{leads_to}-{DAYS[days[0]]}-{hour:02d}{past:02d}"
                yield ScheduledFloor(name, floor, recurrence=cron, starts=first, ends=ends)

    def _weekly_at(self, time: datetime) -> int:
        local = time.astimezone(ZoneInfo(self.time_zone))
        minute = local.weekday() * _MINUTES_A_DAY + local.hour * 60 + local.minute
        return next((floor for begins, floor in reversed(self.weekly) if begins <= minute), self.weekly[-1][1])

    def _between_events(self) -> Iterator[tuple[datetime | None, datetime | None, str]]:
        """Yield the times in which no event sets the floor, and what they lead to; None is an open end."""
        free_from: datetime | None = None
        for due, end, _, name in sorted(self.events):
            if free_from is None or free_from < due:
                # Only the event's own action starts at its moment.
                yield free_from, due - timedelta(minutes=1), f"until-{name}"
            free_from = end
        yield free_from, None, "later"

    def _weekly_times(self) -> Iterator[tuple[int, list[int], int]]:
        """Yield minute of the day, days and floor; days with the same change at the same time share one entry."""
        days: dict[tuple[int, int], list[int]] = defaultdict(list)
        for minute, floor in self.weekly:
            days[minute % _MINUTES_A_DAY, floor].append(minute // _MINUTES_A_DAY)
        for (minute, floor), on in sorted(days.items()):
            yield minute, on, floor

    def _first_after(self, moment: datetime, minute: int, days: list[int]) -> datetime:
        """Return the first occurrence after `moment`, as the action's start: no two actions may start at one time."""
        midnight = moment.astimezone(ZoneInfo(self.time_zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        times = (midnight + timedelta(days=ahead, minutes=minute) for ahead in range(8))
        return next(time for time in times if time > moment and time.weekday() in days)


@dataclass(frozen=True)
class Reserved:
    """What is reserved for one event in each zone of one cell's group."""

    event: str
    opens: datetime
    due: datetime  # when the instances that fill it are started
    starts: datetime
    closes: datetime
    instances: int


def reserved(settings: FleetDescription, group: Group) -> Iterator[Reserved]:
    """Yield what `group` of one cell has reserved in each zone, event by event; nothing where it reserves nothing."""
    for event in settings.events if group.reserve else ():
        floor = max(group.minimum, sizing.instances_wanted(settings, group, event.multiplier))
        yield Reserved(
            event=event.name,
            opens=event.start - timedelta(hours=event.reserve_hours),
            due=event.start - timedelta(minutes=event.lead_minutes),
            starts=event.start,
            closes=event.end,
            instances=math.ceil(floor / len(settings.availability_zones)),
        )


def tags(settings: FleetDescription, cell: str) -> list[dict[str, str]]:
    return [{"Key": TAG, "Value": settings.name}, {"Key": PART_TAG, "Value": cell}]
