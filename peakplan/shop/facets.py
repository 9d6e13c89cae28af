"""Which facet of a plan a field of the catalogue is, and the codes that such fields hold instead of words."""

from typing import Final

from peakplan.shop.fields import SECTIONS
from peakplan.shop.merging import plain_name

_FACETS: Final = ("color", "material", "size", "audience", "count", "shape", "condition", "occasion", "theme", "origin",
                  "time", "line", "model")  # fmt: skip
_FACET_OF: Final = {name: facet for facet in reversed(_FACETS) for name in SECTIONS[facet]}
NAMED: Final = frozenset(("brand", "line", "model", "type"))

_CODES: Final = {
    "audience": {
        code: list(words)
        for section, words in SECTIONS.items()
        if section.startswith("audience ") and f"{section} codes" in SECTIONS
        for code in SECTIONS[f"{section} codes"]
    },
    "size": {"s": ["small"], "m": ["medium"], "l": ["large"], "xl": ["x-large"], "xs": ["x-small"],
             "xxl": ["2xl", "xx-large"]},
}  # fmt: skip


def facet_of_field(field: str) -> str:
    """Return the facet that a field's name tells; "feature", which every other attribute is, where it tells none."""
    name = plain_name(field)
    parts = name.split("_")
    shorter = ("_".join(parts[at:]) for at in range(1, len(parts)) if parts[at - 1] in SECTIONS["qualifiers"])
    return next((_FACET_OF[each] for each in (name, *shorter) if each in _FACET_OF), "feature")


def words_of_code(facet: str, value: str) -> list[str]:
    """Return what shoppers say for a code or a short name that a field holds: "women" for "F"."""
    return _CODES.get(facet, {}).get(value.casefold().replace("'", ""), [])
