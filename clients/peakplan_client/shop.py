"""A shop to try plans on: a shop folder's products or the sample catalogue, searched with a plan or with words alone.

It is in SQLite, one for each process, or in PostgreSQL, which many share.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.errors import CatalogueError, MappingError, SearchTimeoutError
from peakplan_client.indexing import build_index
from peakplan_client.mapping import CatalogueMapping, column
from peakplan_client.plan import Plan
from peakplan_client.searching import KIND
from peakplan_client.sqlite_products import SqliteProducts
from peakplan_client.translating import by_words, in_turn, translate
from peakplan_client.wishes import Judged, Wishes

if TYPE_CHECKING:
    from peakplan_client.postgres_products import PostgresProducts

    Products = SqliteProducts | PostgresProducts

MAPPING = Path(__file__).with_name("shop.yaml")
DATABASE = "products.sqlite"  # of a shop folder, as `peakplan shop learn` writes it
_ID = "peakplan_id"  # its column
LIMIT = 10
TIMEOUT_SECONDS = 1.0
SNIPPET_CHARACTERS = 160
_JUDGED = 3  # times as many as are shown: what is of the kind asked for comes first
_NEAREST = 3  # kinds that are named where the shop has nothing of the kind asked for
_SCHEMA_VERSION = 1
_COLUMNS = [field.name for field in fields_of(Product)]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that are shown of a product."""

    id: str = "id"
    name: str = "name"
    categories: tuple[str, ...] = ("category", "style")
    description: str | None = "description"


@dataclass(frozen=True, slots=True)
class Hit:
    """A product that was found; `price` is None where its catalogue has none."""

    id: str
    name: str
    price: float | None
    currency: str
    category: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of a search, best first; `notes` name the parts of the plan that it left out.

    `missing` are the kinds of things asked for that no hit is said to be; `nothing`: all of them, so that the hits only
    come near; `nearest` are the kinds of the shop that do.
    """

    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    nothing: bool = False
    missing: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option(Hit):
    """A product that was found by a plan, and what of the plan's wishes it meets."""

    judged: Judged


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a search with a plan, and which of its wishes each hit meets."""

    found: Found
    judged: tuple[Judged, ...]

    def options(self, first: int = 0, end: int | None = None) -> tuple[Option, ...]:
        """Return the products of these ranks, which begin with 0, and how each has the wishes."""
        hits, judged = self.found.hits[first:end], self.judged[first:end]
        return tuple(_option(*pair) for pair in zip(hits, judged, strict=True))


class Shop:
    """A catalogue, open for searches. Threads may share it."""

    def __init__(self, products: "Products", mapping: CatalogueMapping, fields: Fields | None = None) -> None:
        self._products = products
        self._mapping = mapping
        self._fields = fields or Fields()

    @classmethod
    def open(cls, cache_dir: str | Path, source: str | Path = catalogue.PRODUCTS) -> Self:
        """Build the database of a catalogue's file at first start, whole or not at all, and open it.

        Raises CatalogueError.
        """
        folder, file = Path(cache_dir).expanduser(), Path(source)
        mapping = CatalogueMapping.load(MAPPING)
        database = folder / f"sample-shop-{_SCHEMA_VERSION}-{catalogue.digest(file)}.sqlite"
        if not database.is_file():
            products = (astuple(product) for product in catalogue.read(file))
            build_index(database, _COLUMNS, products, mapping)
        return cls(SqliteProducts(database), mapping)

    @classmethod
    def of_folder(cls, folder: Path, url: str | None = None) -> Self:
        """Open the products of a shop folder: its own database, or its table in PostgreSQL. Raises CatalogueError."""
        try:
            mapping = CatalogueMapping.load(folder / "mapping.yaml")
            roles = json.loads((folder / "shop.json").read_text(encoding="utf-8"))["summary"]["roles"]
        except (MappingError, OSError, ValueError, KeyError) as error:
            raise CatalogueError("The shop folder cannot be read: learn it again.") from error
        if url is not None:
            named = next((field for field, role in roles.items() if role == "id"), None)
            return cls(cls._postgres(url, mapping), mapping, _fields(roles, named))
        if not (database := folder / DATABASE).is_file():
            raise CatalogueError(f"The shop folder has no {DATABASE}: learn it again, or name PEAKPLAN_SHOP_URL.")
        flat = mapping.without_dots()
        return cls(SqliteProducts(database), flat, _fields({column(name): role for name, role in roles.items()}, _ID))

    @classmethod
    def connect(cls, url: str) -> Self:
        """Open the shop in PostgreSQL that `postgres_products` filled. Raises CatalogueError."""
        mapping = CatalogueMapping.load(MAPPING)
        return cls(cls._postgres(url, mapping), mapping)

    @staticmethod
    def _postgres(url: str, mapping: CatalogueMapping) -> "Products":
        try:  # optional: only this needs the library, and users choose its licence
            from peakplan_client.postgres_products import PostgresProducts
        except ModuleNotFoundError as error:
            todo = "pip install 'peakplan[postgres]'"
            raise CatalogueError(f"A shop in PostgreSQL needs {error.name}, which is missing: {todo}.") from error
        return PostgresProducts(url, mapping.index)

    def with_mapping(self, mapping: CatalogueMapping) -> Self:
        """Return the same shop searched through another mapping; its text fields must be the same."""
        return type(self)(self._products, mapping, self._fields)

    def close(self) -> None:
        """Release the connection that is kept between searches, if the shop is in PostgreSQL."""
        self._products.close()

    def search_raw(self, question: str, limit: int = LIMIT, timeout: float = TIMEOUT_SECONDS) -> Found:
        """Find products by the words of the question alone, any of which may match, ranked by BM25.

        Raises SearchTimeoutError.
        """
        statements = by_words(question, self._mapping, self._products.engine, limit=limit)
        return Found(tuple(map(self._hit, self._run(statements, limit, timeout))))

    def search_plan(
        self, plan: Plan | Mapping[str, Any], question: str, limit: int = LIMIT, timeout: float = TIMEOUT_SECONDS
    ) -> Found:
        """Find products by a plan, a model or a dictionary. Of several things, each gets its share of the hits.

        Raises SearchTimeoutError.
        """
        return self.find(plan, question, limit, timeout).found

    def find(
        self,
        plan: Plan | Mapping[str, Any],
        question: str,
        limit: int = LIMIT,
        timeout: float = TIMEOUT_SECONDS,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Findings:
        """Find products as `search_plan` does, to be judged by the plan's wishes.

        Raises SearchTimeoutError, also once `given_up` says that the caller no longer waits.
        """
        end = time.monotonic() + timeout
        plan = plan if isinstance(plan, Plan) else Plan.model_validate(plan)
        wishes = Wishes(plan, self._mapping)
        translation = translate(plan, self._mapping, self._products.engine, question, limit=_JUDGED * limit)
        rows = self._run(translation.requests, _JUDGED * limit, timeout, given_up)
        if translation.knows_kind and not wishes.kinds:  # of the plan's categories, which are no wishes
            rows.sort(key=lambda row: not translation.is_wanted(row))
        judged = []
        for row in rows:  # a long plan takes a tenth of a second each
            if given_up() or time.monotonic() > end:
                raise SearchTimeoutError(f"The shop did not judge what it found within {timeout:g} s.")
            judged.append((row, wishes.judge(row)))
        order = self._mapping.sort.get(plan.sort)
        if order is not None and order.field is not None:
            judged = _sorted(judged, order.field, falling=order.order == "desc")
        is_sorted = order is not None and order.field is not None
        judged.sort(key=lambda pair: pair[1].rank_of_sorted if is_sorted else pair[1].rank, reverse=True)  # stable
        best = judged[:limit]
        met = {wish.says for _, each in best for wish in each.met if wish.kind == "kind"}
        missing = tuple(said for said in wishes.kinds if said not in met)
        if wishes.kinds:
            nothing = len(missing) == len(wishes.kinds)
        else:
            nothing = bool(translation.requests) and not any(translation.is_wanted(row) for row, _ in best)
        hits = tuple(self._hit(row) for row, _ in best)
        nearest = self._nearest(plan, best, timeout) if nothing else ()
        found = Found(hits, translation.notes, nothing, missing, nearest)
        return Findings(found, tuple(each for _, each in best))

    def _nearest(self, plan: Plan, best: Sequence[tuple[Row, Judged]], timeout: float) -> tuple[str, ...]:
        """Return the kinds of what may be the thing, else those that the shop has most of where the plan's vertical is.

        Without a vertical those of what shares a word.
        """
        kind, vertical = self._mapping.facets.get(KIND), self._mapping.vertical
        if kind is None or kind.field is None:
            return ()
        found = Counter(str(row[kind.field]) for row, _ in best)
        if perhaps := Counter(str(row[kind.field]) for row, judged in best if judged.rank[0] == 0):
            return tuple(name for name, _ in perhaps.most_common(_NEAREST))
        places = vertical.values.get(plan.vertical or "", []) if vertical else []
        if vertical and places:
            there = self._products.most_of(kind.field, vertical.field, places, self._mapping.index, timeout)
            return tuple(dict.fromkeys([*(held for held in there if held in found), *there]))[:_NEAREST]
        return tuple(name for name, _ in found.most_common(_NEAREST))

    def _run(
        self, statements: Sequence[Any], limit: int, timeout: float, given_up: Callable[[], bool] = lambda: False
    ) -> list[Row]:
        """Return each product once: of the parts' hits in turn, then those of the whole question."""
        found: dict[str, Row] = {}
        for row in in_turn(self._products.run(statements, timeout, given_up)):
            found.setdefault(str(row[self._fields.id]), row)
        return list(found.values())[:limit]

    def _hit(self, row: Row) -> Hit:
        shown, price = self._fields, self._mapping.price
        text = str(row.get(shown.description or "") or "")
        if len(text) > SNIPPET_CHARACTERS:
            text = text[:SNIPPET_CHARACTERS].rsplit(" ", 1)[0].rstrip(" ,.;:") + " …"
        amount = row.get(price.field) if price else None
        categories = ", ".join(str(row[field]) for field in shown.categories if row.get(field))
        currency = (price.currency if price else None) or "USD"
        return Hit(
            str(row[shown.id]),
            str(row[shown.name]),
            None if amount is None else float(amount),
            currency,
            categories,
            text,
        )


def _sorted(judged: list[tuple[Row, Judged]], field: str, *, falling: bool) -> list[tuple[Row, Judged]]:
    """Return products in the order of a field, those without it last."""
    having = [pair for pair in judged if pair[0].get(field) is not None]
    having.sort(key=lambda pair: pair[0][field], reverse=falling)
    return having + [pair for pair in judged if pair[0].get(field) is None]


def _fields(roles: Mapping[str, str], named: str | None) -> Fields:
    """Return the fields to show of a product, given their roles and the field that names it."""
    of = {role: field for field, role in roles.items()}
    categories = tuple(field for field, role in roles.items() if role.startswith("category"))
    return Fields(named or of["title"], of["title"], categories, of.get("description"))


def _option(hit: Hit, judged: Judged) -> Option:
    return Option(hit.id, hit.name, hit.price, hit.currency, hit.category, hit.snippet, judged)
