"""The mapping file: the catalogue's fields for each part of a plan, and the names of their values.

docs/search.md explains every key with examples. An error in a file is refused with the file, the key and what to do.
"""

import re
import unicodedata
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from peakplan_client.errors import MappingError

# Names are part of queries as they stand, so that nothing but a name may be one.
_PLAIN_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_IN_NAMES = r'\x00-\x1f\x7f"`\\*^;'  # no part of one: each translator quotes or refuses what else its engine minds
FieldName = Annotated[
    str, StringConstraints(pattern=rf"^[^ {_IN_NAMES}]([^{_IN_NAMES}]*[^ {_IN_NAMES}])?$", max_length=200)
]
IndexName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
Value = str | bool | int | float


def _one_of(*names: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"is not known: use {', '.join(names)}")
        return name

    return AfterValidator(check)


SortName = Annotated[str, _one_of("price_asc", "price_desc", "rating", "newest", "best_selling")]
OfferName = Annotated[str, _one_of("in_stock", "on_sale", "free_shipping", "fast_delivery")]

_WORD = re.compile(r"[^\W_]+(?:[.'’-][^\W_]+|(?<=\d)[,/](?=\d)[^\W_]+)*")
_FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_PARTS = re.compile(r"[.-]")
_POSSESSIVE = re.compile(r"['’]s?$|['’](?=s$)")
_PLURALS = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"))


def words(text: str) -> list[str]:
    """Return the words of a text in lower case: letters and digits, with single signs inside ("t-shirt", "3.5mm").

    Numbers stay whole: "5,5", "18-1/4", "10-1/2" of "10½".

    Nothing else of a shopper's text ever becomes part of a query, so that it can hold no query syntax.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _FRACTION.sub("-", text)).replace("\u2044", "/")
    return _WORD.findall(text.casefold())


def stem(word: str) -> str:
    """Return a word without its plural or possessive ending, which is enough to compare names of values."""
    if "'" in word or "’" in word:
        word = _POSSESSIVE.sub("", word.replace("’", "'"))
    for ending, singular in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + singular
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


@lru_cache(maxsize=2048)  # each of a plan's wishes is compared with the same texts of the same products
def normal(text: str) -> tuple[str, ...]:
    """Return a value's words as they are compared: without case, plural and signs."""
    return tuple(stem(part) for word in words(text) for part in _PARTS.split(word))


def column(field: str) -> str:
    """Return the column that holds a field, which may be nested."""
    return field.replace(".", "_")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FacetMapping(_Strict):
    """Where one facet's values are: in `field`, or only in the text where there is none.

    `values` are catalogue values, each with the words that shoppers use for it; without them the field is taken to
    hold what shoppers say. A facet boosts by `boost`: 1 doubles a product's score. With `filter` a known value of it
    removes every product that has none of those wanted. `ids` are values by the id of a shop folder's category, where
    its name alone leads to several.
    """

    field: FieldName | None = None
    values: dict[str, list[str]] | None = None
    ids: dict[str, str] = Field(default_factory=dict)
    boost: float = Field(default=0.5, ge=0, le=10)
    filter: bool = False

    @model_validator(mode="after")
    def _values_need_a_field(self) -> Self:
        if self.filter and self.values is None:
            raise ValueError("filters but names no `values`: a shopper's own words would hide what is called otherwise")
        if self.values is not None and self.field is None:
            raise ValueError("has values but no field that holds them: name the `field`, or remove `values`")
        if absent := [value for value in self.ids.values() if value not in (self.values or {})]:
            raise ValueError(f"has ids of {', '.join(absent)}, which `values` does not name: add it there")
        return self

    @cached_property
    def _by_name(self) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for value, synonyms in (self.values or {}).items():
            for name in (value, *synonyms):
                if value not in found.setdefault(normal(name), []):
                    found[normal(name)].append(value)
        return found

    @cached_property
    def _longest(self) -> int:
        """The most words that a name has: no longer run of a shopper's words is looked up."""
        return max(map(len, self._by_name), default=0)

    def exact(self, said: str) -> list[str]:
        """Return the catalogue values whose name, or a synonym of it, is just what was said."""
        if self.values is None:
            return [" ".join(words(said))] if self.field and words(said) else []
        return self._by_name.get(normal(said), [])

    def called(self, said: str) -> list[str]:
        """Return the catalogue values whose own name is just what was said: a synonym may name but a part of them."""
        return [value for value in self.exact(said) if self.values is None or normal(value) == normal(said)]

    def of_category(self, identity: str, name: str) -> list[str]:
        """Return the catalogue values of a category of the shop folder: by its id, else those that are called so."""
        return [self.ids[identity]] if identity in self.ids else self.exact(name)

    def within(self, said: str) -> list[str]:
        """Return the catalogue values of the longest name that ends what was said: "boots" of "leather hiking boots".

        What a thing is stands last in English: "basket stuffers" are no baskets. Linear in what was said: the mapping's
        own names bound how much of it is compared.
        """
        if self.values is None or (found := self.exact(said)):
            return self.exact(said)
        all_words = normal(said)
        for length in range(min(len(all_words) - 1, self._longest), 0, -1):
            if found := self._by_name.get(all_words[-length:], []):
                return found
        return []

    def names(self, values: list[str]) -> list[str]:
        """Return what shoppers call catalogue values, their own names first."""
        return [" ".join(words(name)) for value in values for name in (value, *(self.values or {}).get(value, ()))]


class VerticalMapping(_Strict):
    """Which values of `field` each vertical of the plan means. It boosts."""

    field: FieldName
    values: dict[str, list[str]]
    boost: float = Field(default=0.3, ge=0, le=10)


class PriceMapping(_Strict):
    """The field of the price, its currency, and what one unit of other currencies is worth in it.

    Where products have several currencies, `currency_field` says each one's, and bounds compare those in `currency`.
    """

    field: FieldName
    currency: Currency | None = None
    currency_field: FieldName | None = None
    rates: dict[Currency, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _rates_need_a_currency(self) -> Self:
        if self.currency_field and self.currency is None:
            raise ValueError("has a `currency_field`, but no `currency` that bounds compare: add one, such as USD")
        if self.rates and self.currency is None:
            raise ValueError("has rates, but no `currency` that they lead to: add the catalogue's, such as USD")
        return self


class RatingMapping(_Strict):
    """The field of the rating, and the best value that it can have."""

    field: FieldName
    best: float = Field(default=5, gt=0)


class OfferMapping(_Strict):
    """What makes an offer true: `field` equals one of `values`, or is `min` at least."""

    field: FieldName
    values: list[Value] | None = None
    min: float | None = None

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if (self.values is None) == (self.min is None):
            raise ValueError("needs either `values` (such as [true]) or `min` (such as 1)")
        return self


class SortMapping(_Strict):
    """How to sort: by a field, or in Algolia by a replica index that is sorted so."""

    field: FieldName | None = None
    order: Literal["asc", "desc"] = "desc"
    index: IndexName | None = None

    @model_validator(mode="after")
    def _something_to_sort_by(self) -> Self:
        if self.field is None and self.index is None:
            raise ValueError("needs a `field`, or for Algolia the replica's `index`")
        return self


class CatalogueMapping(_Strict):
    """A whole mapping file. `text` are the fields that full-text search reads, with their weights."""

    index: IndexName
    text: dict[FieldName, Annotated[float, Field(gt=0)]] = Field(min_length=1)
    exclude_text: list[FieldName] = Field(default_factory=list)
    facets: dict[str, FacetMapping] = Field(default_factory=dict)
    vertical: VerticalMapping | None = None
    price: PriceMapping | None = None
    rating: RatingMapping | None = None
    offers: dict[OfferName, OfferMapping] = Field(default_factory=dict)
    sort: dict[SortName, SortMapping] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _excluded_text_is_text(self) -> Self:
        if unknown := [field for field in self.exclude_text if field not in self.text]:
            raise ValueError(f"exclude_text names {', '.join(unknown)}, which `text` does not: add it there")
        return self

    def without_dots(self) -> Self:
        """Return the mapping of a table, where a nested field is a column (`column`)."""

        def renamed(value: object, key: str = "") -> object:
            if isinstance(value, dict):
                return {(column(name) if key == "text" else name): renamed(each, name) for name, each in value.items()}
            if key == "exclude_text" and isinstance(value, list):
                return [column(each) for each in value]
            return column(value) if key == "field" and isinstance(value, str) else value

        content = {name: renamed(value, name) for name, value in self.model_dump().items()}
        return type(self).model_validate(content | {"index": column(self.index).replace("-", "_")})

    @cached_property
    def odd_fields(self) -> tuple[str, ...]:
        """The names of fields that are more than letters, digits, _ and dots."""
        parts = (*self.facets.values(), *self.offers.values(), *self.sort.values(), self.vertical, self.rating)
        named = [*self.text, *(part.field for part in parts if part and part.field)]
        named += [name for name in (self.price.field, self.price.currency_field) if name] if self.price else []
        return tuple(dict.fromkeys(name for name in named if not _PLAIN_FIELD.fullmatch(name)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a mapping from a YAML or JSON file. Raises MappingError."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MappingError(f"{path} cannot be read ({error}): name a mapping file in UTF-8.") from error
        try:
            return cls.model_validate(yaml.load(text, _UniqueKeys))
        except yaml.YAMLError as error:
            raise MappingError(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
        except ValidationError as error:
            raise MappingError(f"{path}: {'; '.join(_told(error))}.") from error


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice: YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_HINTS = {
    "extra_forbidden": "is not a key of a mapping: remove it, or look its name up in docs/search.md",
    "missing": "is required: add it",
    "model_type": "must have keys with values: docs/search.md has them",
    "string_pattern_mismatch": "must be a name without quotes, \\ ; * ^ (a currency: three capitals such as USD)",
    "value_error": "{error}",
}


def _told(error: ValidationError) -> list[str]:
    """Return one sentence for each wrong key."""
    told = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"] if part != "[key]") or "the file"
        hint = _HINTS.get(item["type"], "").format(**item.get("ctx", {}))
        told.append(f"{where} {hint or item['msg'][:1].lower() + item['msg'][1:]}")
    return told
