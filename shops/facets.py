"""Which facet of a plan a field of the catalogue is, and the codes that such fields hold instead of words."""

import re
from typing import Final

_NAMES: Final = {
    "color": r"colou?rs?|colou?r_?(?:name|family|map)|shade",
    "material": r"materials?|fabric(?:_type)?|upholstery(?:_material)?|leather_type|frame_material",
    "size": r"(?:screen_|display_)?sizes?|dimension|length|width|height|depth|weight|capacity|volume|storage|diameter",
    "audience": r"gender|target_gender|gender_affinity|audience|age_?group|age_range|sex|suitable_for|department",
    "count": r"(?:pack|piece|item|unit)_?(?:count|quantity|size)|number_of_items|pieces",
    "shape": r"shape|neckline|sleeve(?:_length)?(?:_type)?|fit(?:_type)?|cut|closure(?:_type)?",
    "condition": r"condition",
    "occasion": r"occasions?|season|holiday",
    "theme": r"themes?|patterns?|character|motif|print|genre",
    "origin": r"origin|country(?:_of_origin)?|region|made_in",
    "time": r"year|model_year|vintage|release_year",
    "line": r"series|collection|product_line|line|range|franchise",
    "model": r"model(?:_?(?:name|number|no))?|mpn",
}
_FIELDS: Final = {facet: re.compile(rf"^(?:{names})$") for facet, names in _NAMES.items()}
NAMED: Final = frozenset(("brand", "line", "model", "type"))

_WOMEN: Final = "women woman womens ladies lady female girl girls her wife girlfriend mom mother sister grandma bride"
_MEN: Final = "men man mens male gentleman guy boy boys him husband boyfriend dad father brother grandpa groom"
_CODES: Final = {
    "audience": {
        **dict.fromkeys(("f", "w", "female", "woman", "womens", "women", "ladies", "girls"), _WOMEN),
        **dict.fromkeys(("m", "male", "man", "mens", "men", "boys", "gents"), _MEN),
        **dict.fromkeys(("u", "unisex", "all"), "unisex everyone"),
        **dict.fromkeys(("k", "kid", "kids", "child", "children"), "kids kid children child boys girls son daughter"),
        **dict.fromkeys(("baby", "infant", "babies"), "baby babies infant newborn toddler"),
    },
    "size": {
        "s": "small", "m": "medium", "l": "large", "xl": "x-large", "xs": "x-small", "xxl": "2xl xx-large",
    },
}  # fmt: skip


def facet_of_field(field: str) -> str:
    """Return the facet that a field's name tells; "feature", which every other attribute is, where it tells none."""
    last = re.sub(r"^.*\[(.*)\]$", r"\1", field).rpartition(".")[2]
    name = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last)).strip("_").lower()
    return next((facet for facet, pattern in _FIELDS.items() if pattern.match(name)), "feature")


def words_of_code(facet: str, value: str) -> list[str]:
    """Return what shoppers say for a code or a short name that a field holds: "women" for "F"."""
    return _CODES.get(facet, {}).get(value.casefold().replace("'", ""), "").split()
