"""The selection of a fleet's future events: Auto Scaling refuses a scheduled action whose time has passed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from infra.fleet.settings import FleetSettings

SOURCE = "Amazon EC2 Auto Scaling, PutScheduledUpdateGroupAction: StartTime"


def without_past_events(settings: FleetSettings, now: datetime) -> tuple[FleetSettings, list[str]]:
    """Return the settings without events that are over at `now`, and messages about those and the running ones.

    An event that is over is left out instead of refused: a file must not stop deploys the day after its sale. Nothing
    here can break a rule that the settings obeyed, because every rule over events asks for less where there are fewer.
    """
    over = [event for event in settings.events if event.end <= now]
    begun = [
        event for event in settings.events if event.start - timedelta(minutes=event.lead_minutes) <= now < event.end
    ]
    said = [
        f"event {event.name} was over on {event.end:%Y-%m-%d %H:%M} UTC and is left out: take it out of the file, "
        f"or give it its next date [source: {SOURCE}]"
        for event in over
    ]
    said += [
        f"event {event.name} is under way until {event.end:%Y-%m-%d %H:%M} UTC: groups that stand keep its capacity, "
        f"but a group that is created now is refused its scheduled start; raise groups.*.minimum and take the event "
        f"out until then if you must create one [source: {SOURCE}]"
        for event in begun
    ]
    left = tuple(event for event in settings.events if event not in over)
    return settings.model_copy(update={"events": left}), said


def upcoming_events_only(settings: FleetSettings, now: datetime | None = None) -> FleetSettings:
    """Return `without_past_events` at this moment, and print its messages on standard error."""
    left, said = without_past_events(settings, now or datetime.now(UTC))
    for words in said:
        print(f"{settings.name}: {words}", file=sys.stderr)
    return left
