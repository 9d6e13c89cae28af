"""The variants of a fleet file that the search tries: mixes of instance types, and shares of the events' hosts."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost_report import CPU_TYPES, cpu_service_time
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from rehearsal.twin.situation import event_of


def untimed(settings: FleetSettings) -> dict[str, str]:
    """Return the processors that the search leaves out because nobody has timed a plan on them, and why."""
    if any(group.engine == "torch" for group in sized(settings)):
        return {}
    why = (
        "not among the processors: no plan was timed on one, and where a formula flatters it, it would win. Put it "
        "into groups with a service_time of your own, and the search takes it for what the file says"
    )
    times = {kind: cpu_service_time(kind) for kind in CPU_TYPES}
    return {kind: why for kind, time in times.items() if time is None or not time.is_measured}


def event_floor(settings: FleetSettings, group: Group) -> tuple[int, int]:
    event = event_of(settings)
    return group.minimum, sizing.instances_wanted(settings, group, event[1]) if event else 0


def mixes(settings: FleetSettings) -> Iterator[tuple[str, tuple[Group, ...]]]:
    """Yield the file's groups, each alone with the room of all, and less of the second.

    What stands in stands in beside each, as it is in the file.
    """
    groups, beside = sized(settings), tuple(group for group in settings.groups if group.stands_in)
    rates = [sizing.full_rate(settings, group) for group in groups]
    room = sum(rate * group.maximum for rate, group in zip(rates, groups, strict=True))
    if len(groups) == 1:
        yield f"{groups[0].instance_type} alone", (*groups, *beside)
        return
    yield "the file's types", (*groups, *beside)
    for group, rate in zip(groups, rates, strict=True):
        yield f"{group.instance_type} alone", (group.model_copy(update={"maximum": int(room / rate)}), *beside)
    fewer = groups[1].maximum // 2
    more = int((room - rates[1] * fewer) / rates[0])
    both = (groups[0].model_copy(update={"maximum": more}), groups[1].model_copy(update={"maximum": fewer}))
    yield f"the file's types with half of the {groups[1].instance_type}", (*both, *beside)


def sized(settings: FleetSettings) -> tuple[Group, ...]:
    return tuple(group for group in settings.groups if not group.stands_in)


def processors(settings: FleetSettings) -> Iterator[Group]:
    """Yield groups of processors with the room of the file's, if it has none: one core a replica.

    A processor that nobody has measured is left out: where the formula flatters it, it would win.
    """
    if any(group.engine == "torch" for group in sized(settings)):
        return
    room = sum(sizing.full_rate(settings, group) * group.maximum for group in sized(settings))
    for kind in CPU_TYPES:
        time = cpu_service_time(kind)
        if time is None or not time.is_measured:
            continue
        group = Group(instance_type=kind, engine="torch", service_time=time, minimum=0, maximum=1)
        needed = sizing.floor_for(settings.model_copy(update={"groups": (group,)}), group)  # a host a zone at least
        yield group.model_copy(update={"maximum": max(int(room / sizing.full_rate(settings, group)) + 1, needed)})


def variant(settings: FleetSettings, groups: tuple[Group, ...], share: float) -> FleetSettings | None:
    """Return the fleet with these groups and this share of the events' capacity; None where the settings refuse it."""
    quietest = min((block.share for block in settings.traffic.forecast), default=1.0)
    content = settings.model_dump()
    content["events"] = [
        event.model_dump() | {"multiplier": max(1.0, round(event.multiplier * share, 4))} for event in settings.events
    ]
    trial = settings.model_copy(update={"groups": groups})
    floors = [group.minimum if group.stands_in else sizing.floor_for(trial, group, quietest) for group in groups]
    content["groups"] = [group.model_dump() | {"minimum": floor} for group, floor in zip(groups, floors, strict=True)]
    try:
        return FleetSettings.model_validate(content)
    except ValidationError:
        return None
