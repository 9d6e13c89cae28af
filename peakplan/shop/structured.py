"""Products in JSON and XML: lines, arrays, whatever holds a list of them, feeds."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, Final, TextIO

from peakplan.shop.merging import BadRow, Found, Row

_MOST_CHARACTERS: Final = 4 << 20  # of one product
_READ: Final = 1 << 16
_BETWEEN: Final = re.compile(r"[\s,\[\ufeff]*")
_WRAPPED: Final = ("_source", "node", "document", "item")  # what dumps and feeds put a product into
_ITEMS: Final = frozenset("item entry shopitem product offer row record artikel produkt".split())


def json_rows(file: TextIO, *, is_lines: bool) -> Iterator[Found]:
    """Yield the objects of a text: one a line, those of an array, or the longest list inside one object."""
    first = next((line for line in file if line.strip()), "")
    if first.lstrip("\ufeff \t").startswith("["):
        yield from _array(first, file)
        return
    is_lines = is_lines or not isinstance(_parsed(first), str)
    if is_lines and not (rest := next((line for line in file if line.strip()), "")):
        one = _parsed(first)
        yield from ((at, each) for at, each in enumerate(_inside(one), 1)) if isinstance(one, dict) else _lines([first])
    elif is_lines:
        yield from _lines(chain([first, rest], file))
    else:
        whole = _parsed(first + file.read())
        found = [BadRow(1, whole)] if isinstance(whole, str) else enumerate(_inside(whole), 1)
        yield from found


def _parsed(text: str) -> Any:
    """Return what a text holds, or in words why it holds nothing."""
    try:
        text.encode()
        found = json.loads(text.lstrip("\ufeff"))
    except UnicodeEncodeError as error:
        return f"is not UTF-8 (character {error.start})"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return "is a text, not an object" if isinstance(found, str) else found


def _lines(lines: Iterable[str]) -> Iterator[Found]:
    action: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _parsed(line) if len(line) <= _MOST_CHARACTERS else f"has {len(line)} characters, which no product has"
        if isinstance(row, dict) and row.keys() in ({"index"}, {"create"}):  # the actions of a bulk request
            action = next(iter(row.values()))
        elif isinstance(row, dict):
            yield number, Row({**({"_id": action["_id"]} if "_id" in action else {}), **_unwrapped(row)})
            action = {}
        else:
            yield BadRow(number, row if isinstance(row, str) else f"is a {type(row).__name__}, not an object")


def _array(first: str, file: TextIO) -> Iterator[Found]:
    """Yield the elements of an array, however its lines are broken, without holding all of it."""
    decoder, number, text, at = json.JSONDecoder(), 0, first, 0
    while True:
        match = _BETWEEN.match(text, at)
        at = match.end() if match else at
        try:
            row, at = decoder.raw_decode(text, at)
        except ValueError as error:
            more = file.read(_READ)
            if more and len(text) - at <= _MOST_CHARACTERS:
                text, at = text[at:] + more, 0
                continue
            if more or not text[at:].lstrip().startswith("]"):
                yield BadRow(number + 1, f"is not JSON ({error}), and nothing after it is read")
            return
        number += 1
        yield (number, _unwrapped(row)) if isinstance(row, dict) else BadRow(number, "is no object")


def _inside(value: Any) -> Iterator[Row]:
    """Yield the products of an object: those of its longest list of objects, else itself."""
    best: list[Any] = []
    level = [value]
    for _ in range(5):
        lists = [each for each in level if isinstance(each, list) and each and isinstance(each[0], dict)]
        best = max([best, *lists], key=len)
        level = [below for each in level if isinstance(each, dict) for below in each.values()]
        if best:
            break
    held = list(value.values()) if isinstance(value, dict) and not best else []
    if len(held) > 1 and all(isinstance(each, dict) and each.keys() == held[0].keys() for each in held):  # by their ids
        best = [{"_id": name, **each} for name, each in value.items()]
    is_product = isinstance(value, dict) and value.keys() & {"title", "name", "sku", "offers"}
    rows = [_unwrapped(each) for each in best if isinstance(each, dict)] if not is_product else []
    products = [row for row in rows if "Product" in str(row.get("@type", ""))]
    yield from products or rows or [_unwrapped(value)]


def _unwrapped(row: dict[str, Any]) -> Row:
    """Return the product that a dump has put into an object of its own, with its id."""
    inner = next((row[name] for name in _WRAPPED if isinstance(row.get(name), dict)), None)
    if inner is None:
        return Row(row)
    return Row({**({"_id": row["_id"]} if "_id" in row and "id" not in inner else {}), **inner})


def xml_rows(file: IO[bytes]) -> Iterator[Found]:
    """Yield the products of a feed: Google's and Facebook's RSS and Atom, Heureka's, Yandex's, a shop's own. Raises
    ValueError where there is none.
    """
    number = 0
    inside: ElementTree.Element | None = None
    paths: dict[str, str] = {}  # of categories that the feed names once, by id
    for event, one in ElementTree.iterparse(file, events=("start", "end")):
        if event == "start":
            inside = one if inside is None and _local(one.tag) in _ITEMS else inside
        elif inside is not None and one is inside:
            number, inside = number + 1, None
            row = Row(_children(one))
            if (path := paths.get(str(row.get("categoryId")))) is not None:
                row["category"] = path
                del row["categoryId"]
            yield number, row
            one.clear()
        elif inside is None and _local(one.tag) == "category" and one.get("id") and one.text:
            above = paths.get(one.get("parentId", ""), "")
            paths[one.get("id", "")] = f"{above} > {one.text.strip()}".removeprefix(" > ")
    if not number:
        raise ValueError(f"it has none of the elements {', '.join(sorted(_ITEMS))}: save it as CSV in UTF-8")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _children(one: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {name: value for name, value in one.attrib.items() if name in ("id", "available")}
    for child in one:
        name = child.tag.rpartition("}")[2]
        value: Any = _children(child) if len(child) else (child.text or "").strip() or child.get("href", "")
        if isinstance(value, dict) and name.lower() == "param":
            pair = list(value.values())[:2]
            value = {"name": pair[0], "value": pair[-1]}
        elif child.get("name") and isinstance(value, str):  # <param name="Colour">blue</param>
            value = {"name": child.get("name"), "value": value}
        if name in found or isinstance(value, dict):
            before = found.get(name, [])
            value = [*(before if isinstance(before, list) else [before]), value]
        found[name] = value
    return found
