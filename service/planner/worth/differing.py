"""Whether two plans of a question differ in what a shop would notice."""

from service.planner.plan import Part, Plan


def differ(one: Plan, other: Plan) -> bool:
    """Tell whether intent, first query, refusals, price, sort, offers or parts differ.

    Verticals, facets and later queries are left out: two good plans often differ in them.
    """
    return _told(one) != _told(other)


def _told(plan: Plan) -> tuple[object, ...]:
    return (plan.intent, plan.sort, sorted(plan.offers), _thing(plan), [_thing(part) for part in plan.parts])


def _thing(thing: Plan | Part) -> tuple[object, ...]:
    refused = sorted(value.lower() for values in thing.exclude.values() for value in values)
    return [query.lower() for query in thing.queries[:1]], refused, thing.price
