"""Turn a plan and a mapping into engine-independent searches: texts, filters, boosts, a sort.

Only price, rating, offers and exclusions filter, and facets where the mapping says so; else facets and the vertical
boost. The shopper's own words are always among the texts that may match, so that a search finds whatever these words
alone would find and no filter forbids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from peakplan_client.mapping import CatalogueMapping, FacetMapping, SortMapping, normal, words
from peakplan_client.operators import read_operators, without_refused
from peakplan_client.plan import Part, Plan, Price
from peakplan_client.search import AnyOf, Boost, Filter, NoneOf, NotInText, Range, Search, Searches, Text, Wanted
from peakplan_client.wording import narrower

# How much words count: those of the plan's queries, the catalogue's own names for its facets, and the shopper's. Tuned
# on the dev half of rehearsal/bench/retrieval_questions.jsonl.
QUERY_WEIGHTS = (1.0, 0.3, 0.2)
NAMES_WEIGHT = 0.3
OWN_WORDS_WEIGHT = 0.5
EXACT_WEIGHT = 5.0  # of a phrase that the shopper quotes
KIND: Final = "type"  # the facet that says what a thing is
_SHARES: Final = (1.0, 0.5, 0.3)  # of that facet's boost: the best kind counts most


def searches(plan: Plan, mapping: CatalogueMapping, question: str = "") -> Searches:
    """Return one search, or where several things are wanted one for each and one for the question as it stands.

    Nothing is searched where the plan has no queries: it is about an order, say.
    """
    if not plan.queries:
        return Searches((), ("the plan has no queries: there is nothing to search",))
    question, refused, exact = read_operators(question)
    if refused:
        kept = [without_refused(part, refused) for part in plan.parts]
        plan = without_refused(plan, refused).model_copy(update={"parts": kept})
    translation = _Translation(plan, mapping, exact)
    if not plan.parts:
        return translation.done([translation.search(plan, plan.queries, question)])
    parts = [translation.search(part, part.queries) for part in plan.parts]
    return translation.done([*parts, translation.search(plan, [] if words(question) else plan.queries, question)])


def _texts(given: Sequence[tuple[str, float]]) -> tuple[Text, ...]:
    """Return each distinct text once, with the weights of all that say the same words."""
    texts: dict[str, float] = {}
    for text, weight in given:
        if plain := " ".join(words(text)):
            texts[plain] = texts.get(plain, 0) + weight
    return tuple(Text(text, round(weight, 6)) for text, weight in texts.items())


def _kinds_of(part: Part, mapping: CatalogueMapping, note: Callable[[str], None]) -> list[tuple[str, list[str], float]]:
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


class _Translation:
    """One plan's way through one mapping; `notes` collects what has no place in the mapping."""

    def __init__(self, plan: Plan, mapping: CatalogueMapping, exact: Sequence[str] = ()) -> None:
        self._plan = plan
        self._exact = [Boost(None, (" ".join(words(phrase)),), EXACT_WEIGHT) for phrase in exact if words(phrase)]
        self._mapping = mapping
        self._closed = {facet.field for facet in mapping.facets.values() if facet.values is not None}
        self._notes: dict[str, None] = {}

    def done(self, found: Sequence[Search]) -> Searches:
        return Searches(tuple(search for search in found if search.texts), tuple(self._notes))

    def search(self, part: Part, queries: Sequence[str], question: str = "") -> Search:
        filters = (*self._price(part.price), *self._rating(), *self._offers(), *self._exclusions(part.exclude))
        filters += tuple(self._required(part.facets))
        kinds = [
            Boost(field, tuple(names), weight) for field, names, weight in _kinds_of(part, self._mapping, self._note)
        ]
        boosts = [*self._boosts(part.facets), *kinds]
        closed = [value for boost in boosts if boost.field in self._closed for value in boost.values]
        said = set(normal(" ".join(queries)))
        # One letter is a code ("F") and no word.
        names = " ".join(value for value in closed if len(value) > 1 and not said.issuperset(normal(value)))
        weighed = [*zip(queries, QUERY_WEIGHTS, strict=False), (names, NAMES_WEIGHT), (question, OWN_WORDS_WEIGHT)]
        wanted = tuple(self._wanted(part.facets))
        if kinds and not part.facets.get(KIND):  # what is named is what is wanted, in the shop or not
            wanted = (*(Wanted(each.field, each.values, (), True) for each in kinds), *wanted)
            if self._mapping.facets[KIND].filter:
                filters += (AnyOf(kinds[0].field or "", tuple(value for each in kinds for value in each.values)),)
        return Search(_texts(weighed), filters, (*boosts, *self._exact, *self._vertical()), self._sort(), wanted)

    def _note(self, note: str) -> None:
        self._notes[note] = None

    def _price(self, price: Price) -> list[Filter]:
        if price.min is None and price.max is None:
            return []
        if (mapping := self._mapping.price) is None:
            self._note("the mapping has no price: prices are not filtered")
            return []
        rate = 1.0
        if price.currency and mapping.currency and price.currency != mapping.currency:
            if price.currency not in mapping.rates:
                self._note(
                    f"prices are not filtered: the question is in {price.currency}, the catalogue in "
                    f"{mapping.currency}, and the mapping has no price.rates.{price.currency}"
                )
                return []
            rate = mapping.rates[price.currency]
        low, high = (None if bound is None else round(bound * rate, 2) for bound in (price.min, price.max))
        same = [AnyOf(mapping.currency_field, (mapping.currency or "",))] if mapping.currency_field else []
        return [Range(mapping.field, low, high), *same]

    def _rating(self) -> list[Filter]:
        if self._plan.rating.min is None:
            return []
        if (mapping := self._mapping.rating) is None:
            self._note("the mapping has no rating: ratings are not filtered")
            return []
        return [Range(mapping.field, round(self._plan.rating.min * mapping.best / 5, 4), None)]

    def _offers(self) -> list[Filter]:
        found: list[Filter] = []
        for offer in self._plan.offers:
            if offer not in self._mapping.offers:
                self._note(f"the mapping has no offers.{offer}: it is not filtered")
                continue
            wanted = self._mapping.offers[offer]
            if wanted.values is None:
                found.append(Range(wanted.field, wanted.min, None))
            else:
                found.append(AnyOf(wanted.field, tuple(wanted.values)))
        return found

    def _exclusions(self, exclude: Mapping[str, Sequence[str]]) -> list[Filter]:
        found: list[Filter] = []
        for facet, values in exclude.items():
            for said in values:
                refused = self._refused(facet, said)
                found += refused
                if not refused:
                    self._note(f"a {facet} is not excluded: the mapping has neither its value nor exclude_text")
        return list(dict.fromkeys(found))

    def _refused(self, facet: str, said: str) -> list[Filter]:
        """Return the filters of an exclusion: on the facet's own field, or on every field with a value of this name.

        The planner may take a grape for a feature, and the mapping have it under another facet; or "glass" may be how
        the mapping calls eyewear. So where the facet itself does not know the value, no text may have it either.
        """
        facets = self._mapping.facets
        own = [each for name in (said, *narrower(facet, said)) for each in self._refusable(facet, name)]
        if own:
            return own
        found = [
            each for name, known in facets.items() if known.values is not None for each in self._refusable(name, said)
        ]
        if self._mapping.exclude_text:  # suede is leather, too
            names = [" ".join(words(name)) for name in (said, *narrower(facet, said))]
            found += [NotInText(tuple(self._mapping.exclude_text), name) for name in names if name]
        return found

    def _refusable(self, facet: str, said: str) -> list[Filter]:
        """Return filters against a facet's values: "no balls" is not "no pet toys", though balls are among them."""
        mapping = self._mapping.facets.get(facet)
        if mapping is None or mapping.field is None:
            return []
        known = mapping.called(said) if facet == KIND else mapping.exact(said)
        return [NoneOf(mapping.field, tuple(known))] if known else []

    def _required(self, facets: Mapping[str, Sequence[str]]) -> Iterator[Filter]:
        """Yield a filter for each facet that the mapping filters by: one of the wanted values that the shop knows."""
        for facet, values in facets.items():
            mapping = self._mapping.facets.get(facet)
            if mapping and mapping.filter and mapping.field:
                known = dict.fromkeys(value for said in values for value in mapping.within(said))
                if known:
                    yield AnyOf(mapping.field, tuple(known))

    def _boosts(self, facets: Mapping[str, Sequence[str]]) -> list[Boost]:
        """Return the boosts of the wanted facets.

        Words that are no value of a facet whose values are all known lift nothing ("a place to sit"): they stay among
        those that may match.
        """
        found: list[Boost] = []
        for facet, values in facets.items():
            mapping = self._mapping.facets.get(facet)
            if mapping is None or not mapping.boost:
                continue  # its words are in the queries
            named = {said: mapping.within(said) if mapping.field else [] for said in values}
            known = [value for said in values for value in named[said]]
            unknown = [" ".join(words(said)) for said in values if not named[said] and normal(said)]
            if known:
                found.append(Boost(mapping.field, tuple(dict.fromkeys(known)), mapping.boost))
            if unknown and mapping.values is None:
                found.append(Boost(None, tuple(dict.fromkeys(unknown)), mapping.boost))
        return found

    def _wanted(self, facets: Mapping[str, Sequence[str]]) -> Iterator[Wanted]:
        """Yield each value that is wanted."""
        for facet, values in facets.items():
            mapping = self._mapping.facets.get(facet)
            for said in values:
                if not words(said):
                    continue
                if facet == KIND:
                    yield from self._kind(self._thing(said, mapping), mapping)
                elif mapping and (known := self._known(said, mapping)):
                    yield Wanted(mapping.field, tuple(known), (), False)
                else:
                    yield Wanted(None, (" ".join(words(said)),), tuple(self._mapping.text), False)

    def _kind(self, said: str, mapping: FacetMapping | None) -> Iterator[Wanted]:
        """Yield what a thing is: of a category, or called so where products are named, not in passing."""
        known = self._known(said, mapping)
        heaviest = max(self._mapping.text.values())
        names = tuple(field for field, weight in self._mapping.text.items() if weight > heaviest / 2)
        if mapping and known:
            yield Wanted(mapping.field, tuple(known), (), True)
        # A lamp may be of the kind "lighting", whose other names (a candle's) are no names of it.
        is_all = any(normal(said)[-len(normal(value)) :] == normal(value) for value in known)
        if is_all and self._plan.sort != "relevance":
            return  # whatever is in it is one: the cheapest earrings may be called "Ruby Crown"
        # The last word says what it is: "quiet blender".
        called = dict.fromkeys([words(said)[-1], *(mapping.names(known) if mapping and is_all else ())])
        said_in = tuple(name for name in names if mapping is None or name != mapping.field) or names
        yield Wanted(None, tuple(called), said_in, True)
        if not known and mapping and mapping.values is not None:
            self._note("the mapping knows no kind of this name: what is found may be something else")

    @staticmethod
    def _known(said: str, mapping: FacetMapping | None) -> list[str]:
        return mapping.within(said) if mapping and mapping.field else []

    def _thing(self, said: str, mapping: FacetMapping | None) -> str:
        """Return what a thing is, without what it is of, where that is no thing of the shop: a bouquet of roses."""
        thing, _, of = said.partition(" of ")
        return thing if of and self._known(thing, mapping) and not self._known(of, mapping) else said

    def _vertical(self) -> list[Boost]:
        mapping = self._mapping.vertical
        if mapping is None or self._plan.vertical is None or not mapping.boost:
            return []
        values = mapping.values.get(self._plan.vertical, [])
        return [Boost(mapping.field, tuple(values), mapping.boost)] if values else []

    def _sort(self) -> SortMapping | None:
        if self._plan.sort == "relevance":
            return None
        if self._plan.sort not in self._mapping.sort:
            self._note(f"the mapping has no sort.{self._plan.sort}: results stay sorted by relevance")
        return self._mapping.sort.get(self._plan.sort)
