"""The plan's kinds, which are categories of the shop, as a mapping's values lift and order them."""

from collections.abc import Callable
from typing import Final

from peakplan_client.mapping import CatalogueMapping
from peakplan_client.plan import Part, Plan

KIND: Final = "type"  # the facet that says what a thing is
_SHARES: Final = (1.0, 0.5, 0.3)  # of that facet's boost: the best kind counts most


def kinds_of(part: Part, mapping: CatalogueMapping, note: Callable[[str], None]) -> list[tuple[str, list[str], float]]:
    """Return field, values and boost of each of the plan's kinds, where what is named leads to none of the mapping's.

    Kinds are of the whole plan: which of several things each is of, the mapping's own names have to tell.
    """
    facet = mapping.facets.get(KIND)
    if facet is None or facet.field is None or not facet.boost or not isinstance(part, Plan) or part.parts:
        return []
    if facet.values is not None and any(facet.within(said) for said in part.facets.get(KIND, ())):
        return []
    found = []
    for kind, share in zip(part.kinds, _SHARES, strict=False):
        if values := facet.of_category(kind.id, kind.name):
            found.append((facet.field, values, round(facet.boost * share, 6)))
        else:
            note("a kind of the plan is no value of the mapping: learn shop folder and mapping from one catalogue")
    return found
