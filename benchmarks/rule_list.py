"""The rules of the planner that can be taken away alone, and how each is: `benchmarks.rules` counts what they change.

A rule is a section of phrases.txt or patterns.txt, a collection or pattern that a module binds (without it, it is empty
or matches nothing), or a function that says yes, no or nothing, or returns a collection (it says no, or returns none).
What no function reads is none: it only makes another name while modules are imported, and that one is the rule.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

PLANNER = Path(__file__).parents[1] / "service" / "planner"
ROOMS = ("reading", "rules", "making")
PACKAGE = "service.planner"
_NEVER = "(?!)"
_EMPTY: dict[str, Callable[[], Any]] = {
    "bool": bool, "set": set, "frozenset": frozenset, "list": list, "tuple": tuple, "dict": dict, "Iterator": tuple,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its place: a `file` under service/planner, and the section, constant or function in it."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def is_section(self) -> bool:
        return self.name.startswith("[")

    @property
    def module(self) -> str:
        """The module that a rule of Python stands in."""
        return f"{PACKAGE}.{self.file.removesuffix('.py').replace('/', '.')}"


def rules() -> Iterator[Rule]:
    """Yield every rule that can be taken away."""
    for room in ROOMS:
        for path in sorted((PLANNER / room).rglob("*")):
            file = str(path.relative_to(PLANNER))
            if path.name in ("phrases.txt", "patterns.txt", "shared.txt"):
                names = re.findall(r"^\[(.+)\]$", path.read_text(encoding="utf-8"), re.MULTILINE)
                yield from (Rule(file, f"[{name}]") for name in names if name != "parts")
            elif path.suffix == ".py":
                yield from (Rule(file, name) for name in _named(_parsed(path)))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _read_by_functions() -> frozenset[str]:
    """Return the names that functions of the planner read."""
    bodies = (
        statement
        for path in PLANNER.rglob("*.py")
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )
    read = (node for body in bodies for node in ast.walk(body))
    return frozenset(
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in read
        if isinstance(node, ast.Name | ast.Attribute)
    )


def _named(module: ast.Module) -> Iterator[str]:
    for name in _bound(module):
        if "." in name or name in _read_by_functions():
            yield name


def _bound(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and not _is_section(node.value):
                yield target.id
        elif isinstance(node, ast.FunctionDef) and _returned(node):
            yield node.name
        elif isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef))
            yield from (f"{node.name}.{one.name}" for one in methods if _returned(one) and one.name != "__init__")


def _is_section(value: ast.expr) -> bool:
    """Tell whether a constant is no more than a section of a file, which is a rule by itself."""
    return bool(re.fullmatch(r"(PHRASES\.(words|table|spelt)\(.*\)|_PATTERNS\[.*\])", ast.unparse(value)))


def _returned(function: ast.FunctionDef) -> str:
    """Return what stands for "no" or nothing in a function's place, a name of `_EMPTY` or "None"; empty for no rule."""
    annotation = ast.unparse(function.returns) if function.returns else ""
    if annotation.endswith("| None"):
        return "None"
    outer = annotation.partition("[")[0]
    return outer if outer in _EMPTY else ""


def import_rooms() -> None:
    """Import every module that rules stand in."""
    for room in ROOMS:
        for path in sorted((PLANNER / room).rglob("*.py")):
            place = path.relative_to(PLANNER.parents[1]).with_suffix("")
            importlib.import_module(".".join(place.parts).removesuffix(".__init__"))


def take_away(rule: Rule) -> bool:
    """Take a rule away in this process; False where it is none after all. Of a section, before the rooms' import."""
    if rule.is_section:
        _empty_section(rule)
        return True
    module = sys.modules[rule.module]
    *owners, name = rule.name.split(".")
    if owners:
        owner = getattr(module, owners[0])
        is_property = isinstance(owner.__dict__[name], property | cached_property)
        setattr(owner, name, property(_silent(rule)) if is_property else _silent(rule))
        return True
    empty = _without(rule)
    if empty is not None:
        put_in_place_of(getattr(module, name), name, empty)
    return empty is not None


def is_rule(rule: Rule) -> bool:
    """Tell whether there is anything to take away; the rooms must be imported."""
    return rule.is_section or "." in rule.name or _without(rule) is not None


def is_function(value: object) -> bool:
    """Tell whether a name is bound to a function, whatever remembers its answers; a type or a bound method is none."""
    return isinstance(inspect.unwrap(value) if callable(value) else value, FunctionType)


def _without(rule: Rule) -> Any:
    value = getattr(sys.modules[rule.module], rule.name)
    return _silent(rule) if is_function(value) else _emptied(value)


def put_in_place_of(value: object, name: str, other: object) -> None:
    """Bind a name to another value in every module of the planner that has it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(PACKAGE) and getattr(module, name, None) is value:
            setattr(module, name, other)


def _emptied(value: object) -> Any:
    from service.planner.fallback.reading.phrase_file import Trie

    if type(value) in (frozenset, tuple, dict, list):
        return type(value)() if value else None
    if isinstance(value, re.Pattern):
        return re.compile(_NEVER)
    return Trie({}) if isinstance(value, Trie) else None


def says_nothing(rule: Rule, answer: object) -> bool:
    """Tell whether an answer of a function is the one that it gives when it is taken away."""
    if _silence(rule) == "None":
        return answer is None
    kind: Any = next((kind for kind in (frozenset, set, list, tuple, dict) if isinstance(answer, kind)), None)
    return not (kind.__len__(answer) if kind else answer)  # what notes its use is not asked by us


def _silence(rule: Rule) -> str:
    *owners, name = rule.name.split(".")
    body: list[ast.stmt] = _parsed(PLANNER / rule.file).body
    for owner in owners:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
    return _returned(next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name))


def _silent(rule: Rule) -> Callable[..., Any]:
    returned = _silence(rule)
    return lambda *_, **__: None if returned == "None" else _EMPTY[returned]()


def _empty_section(rule: Rule) -> None:
    from service.planner.fallback.reading import phrase_file

    read, name = phrase_file.lines_of_sections, rule.name.strip("[]")
    instead = [_NEVER] if rule.file.endswith("patterns.txt") else []

    def emptied(path: Path) -> dict[str, list[str]]:
        found = read(path)
        return found | {name: instead} if path.match(f"*/{rule.file}") else found

    phrase_file.lines_of_sections = emptied
