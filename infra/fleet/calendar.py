"""The floor under a group's size by the calendar: a forecast by day and hour, and known events above it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from infra.fleet import sizing
from infra.fleet.demand import DAYS
from infra.fleet.parts import Group
from infra.fleet.policies import ScheduledFloor
from infra.fleet.settings import FleetSettings

_MINUTES_A_DAY = 24 * 60
_MINUTES_A_WEEK = 7 * _MINUTES_A_DAY


@dataclass(frozen=True)
class Calendar:
    """`weekly`: minutes since Monday 0:00 in `time_zone`, floor from then on. `events`: begin, end, floor, name."""

    weekly: tuple[tuple[int, int], ...]
    events: tuple[tuple[datetime, datetime, int, str], ...]
    time_zone: str

    @classmethod
    def of_group(cls, settings: FleetSettings, group: Group) -> Calendar:
        """Floors rise a cold boot before the load is forecast, and fall when it is forecast to fall."""
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
        """The floor in force at `time`, which is aware of its zone."""
        return max([self._weekly_at(time), *(floor for due, end, floor, _ in self.events if due <= time < end)])

    @property
    def highest(self) -> int:
        """The highest floor of all."""
        return max([floor for _, floor in self.weekly] + [floor for _, _, floor, _ in self.events])

    def actions(self) -> Iterator[ScheduledFloor]:
        """Auto Scaling's scheduled actions, one a moment: two of a group at the same time are refused.

        The last one to run wins, so the forecast's actions rest while an event has the floor.
        """
        moments = {end: f"{name}-ends" for _, end, _, name in self.events}
        moments |= {due: f"{name}-begins" for due, _, _, name in self.events}
        for moment in sorted(moments):
            yield ScheduledFloor(moments[moment], self.floor_at(moment), at=moment)
        if len(self.weekly) == 1:
            return
        for number, (starts, ends) in enumerate(self._between_events(), start=1):
            for minute, days, floor in self._weekly_times():
                hour, past = divmod(minute, 60)
                cron = f"{past} {hour} * * {','.join(DAYS[day].upper() for day in days)}"
                name = f"{DAYS[days[0]]}-{hour:02d}{past:02d}-{number}"
                first = self._first_after(starts, minute, days) if starts else None
                if first is None or ends is None or first < ends:
                    yield ScheduledFloor(name, floor, recurrence=cron, starts=first, ends=ends)

    def _weekly_at(self, time: datetime) -> int:
        local = time.astimezone(ZoneInfo(self.time_zone))
        minute = local.weekday() * _MINUTES_A_DAY + local.hour * 60 + local.minute
        return next((floor for begins, floor in reversed(self.weekly) if begins <= minute), self.weekly[-1][1])

    def _between_events(self) -> Iterator[tuple[datetime | None, datetime | None]]:
        """The times in which no event has the floor; None is open."""
        free_from: datetime | None = None
        for due, end, _, _ in sorted(self.events):
            if free_from is None or free_from < due:
                yield free_from, due - timedelta(minutes=1)  # the event's own action has its moment alone
            free_from = end
        yield free_from, None

    def _weekly_times(self) -> Iterator[tuple[int, list[int], int]]:
        """Minute of the day, days and floor; the days on which the same happens at the same time share one."""
        days: dict[tuple[int, int], list[int]] = defaultdict(list)
        for minute, floor in self.weekly:
            days[minute % _MINUTES_A_DAY, floor].append(minute // _MINUTES_A_DAY)
        for (minute, floor), on in sorted(days.items()):
            yield minute, on, floor

    def _first_after(self, moment: datetime, minute: int, days: list[int]) -> datetime:
        """When it first happens after `moment`: its own start, for no two actions may start at one time."""
        midnight = moment.astimezone(ZoneInfo(self.time_zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        times = (midnight + timedelta(days=ahead, minutes=minute) for ahead in range(8))
        return next(time for time in times if time > moment and time.weekday() in days)
