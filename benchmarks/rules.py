"""What each rule of the planner is worth: `make eval` writes docs/figures/rules.json.

Every named word list, pattern and function of reading, rules and making is taken away alone, and the questions of
benchmarks/cases are planned again: by rule, and of the texts that the model wrote once. A rule's counts are the plans
that are others without it (`changed`), the cases that pass only with it (`better`), and those that pass only without it
(`worse`). A rule that changes no plan should not stand.

Taken away are a section of phrases.txt or patterns.txt, a collection or pattern that a module binds (it is empty then,
or matches nothing), and a function that says yes, no or nothing, or returns a collection (it says no, or returns none).
"""

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

FIGURE = Path("docs/figures/rules.json")
PLANNER = Path(__file__).parents[1] / "service" / "planner"
ROOMS = ("reading", "rules", "making")
_SECONDS = 120  # that one rule's plans may take; without a rule that ends a loop they would take for ever
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


def rules() -> Iterator[Rule]:
    """Yield every rule that can be taken away."""
    for room in ROOMS:
        for path in sorted((PLANNER / room).rglob("*")):
            file = str(path.relative_to(PLANNER))
            if path.name in ("phrases.txt", "patterns.txt", "shared.txt"):
                names = re.findall(r"^\[(.+)\]$", path.read_text(encoding="utf-8"), re.MULTILINE)
                yield from (Rule(file, f"[{name}]") for name in names if name != "parts")
            elif path.suffix == ".py":
                yield from (Rule(file, name) for name in _named(ast.parse(path.read_text(encoding="utf-8"))))


def _named(module: ast.Module) -> Iterator[str]:
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


def take_away(rule: Rule) -> bool:
    """Take a rule away in this process, which has not imported the planner; False where it is no rule after all."""
    if rule.name.startswith("["):
        _empty_section(rule)
        return True
    _import_rooms()
    module = sys.modules["service.planner." + rule.file.removesuffix(".py").replace("/", ".")]
    *owners, name = rule.name.split(".")
    if not owners:
        value = getattr(module, name)
        empty = _emptied(value) if not callable(value) else _silent(module, rule)
        if empty is None:
            return False
        for other in list(sys.modules.values()):
            if getattr(other, "__name__", "").startswith("service.planner") and getattr(other, name, None) is value:
                setattr(other, name, empty)
        return True
    owner = getattr(module, owners[0])
    is_property = isinstance(owner.__dict__[name], property | cached_property)
    silent = _silent(module, rule)
    setattr(owner, name, property(silent) if is_property else silent)
    return True


def _import_rooms() -> None:
    for room in ROOMS:
        for path in sorted((PLANNER / room).rglob("*.py")):
            place = path.relative_to(PLANNER.parents[1]).with_suffix("")
            importlib.import_module(".".join(place.parts).removesuffix(".__init__"))


def _emptied(value: object) -> Any:
    from service.planner.reading.phrase_file import Trie

    if isinstance(value, frozenset | tuple | dict | list):
        return type(value)() if value else None
    if isinstance(value, re.Pattern):
        return re.compile(_NEVER)
    return Trie({}) if isinstance(value, Trie) else None


def _silent(module: Any, rule: Rule) -> Callable[..., Any]:
    *owners, name = rule.name.split(".")
    body: list[ast.stmt] = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    for owner in owners:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
    function = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    returned = _returned(function)
    return lambda *_, **__: None if returned == "None" else _EMPTY[returned]()


def _empty_section(rule: Rule) -> None:
    from service.planner.reading import phrase_file

    read, name = phrase_file.lines_of_sections, rule.name.strip("[]")
    instead = [_NEVER] if rule.file.endswith("patterns.txt") else []

    def emptied(path: Path) -> dict[str, list[str]]:
        found = read(path)
        return found | {name: instead} if path.match(f"*/{rule.file}") else found

    phrase_file.lines_of_sections = emptied


def _plans(rows: list[dict[str, Any]], model: Path, rule: Rule | None) -> list[dict[str, str | None]] | None:
    """Return the plans of the rows without a rule; None where it is none."""
    if rule is not None and not take_away(rule):
        return None
    from service.planner.making.plans import plan_by_rule, plan_from_text
    from service.planner.question import Question
    from service.planner.reading.conversation import Conversation
    from service.planner.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(model)
    found: list[dict[str, str | None]] = []
    for row in rows:
        conversation = Conversation(Question.parse(row["query"], row["history"]))
        makers: dict[str, Callable[..., Any]] = {"model": partial(plan_from_text, row["text"]), "rules": plan_by_rule}
        found.append({name: _plan(partial(make, conversation, vocabulary)) for name, make in makers.items()})
    return found


def _plan(make: Callable[[], Any]) -> str | None:
    try:
        plan: str = make().model_dump_json()
    except Exception:  # whatever breaks without the rule is a plan that it gave
        return None
    return plan


def _in_a_process(rows: list[dict[str, Any]], model: Path, rule: Rule | None) -> list[dict[str, str | None]] | None:
    """Return `_plans` of a process of its own; no plans at all where it takes too long or fails."""
    reading, writing = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(_SECONDS)
            for name in [name for name in sys.modules if name.startswith("service.planner")]:
                del sys.modules[name]  # lists are bound when a module is first imported
            writing.send(_plans(rows, model, rule))
            code = 0
        finally:
            os._exit(code)
    writing.close()
    nothing: list[dict[str, str | None]] = [{"model": None, "rules": None} for _ in rows]
    try:
        return reading.recv() if reading.poll(_SECONDS + 1) else nothing
    except EOFError:
        return nothing
    finally:
        reading.close()
        os.waitpid(child, 0)


def counts(
    rows: list[dict[str, Any]],
    model: Path,
    passes: Callable[[dict[str, Any], str], bool],
    chosen: Callable[[Rule], bool] = lambda _: True,
) -> Iterator[tuple[Rule, dict[str, dict[str, int]]]]:
    """Yield each rule with its counts, by model and by rules; `passes` judges a row's plan."""
    with_all = _in_a_process(rows, model, None) or []
    for rule in filter(chosen, rules()):
        without = _in_a_process(rows, model, rule)
        if without is None:
            continue
        found = {}
        for maker in ("model", "rules"):
            count = {"changed": 0, "better": 0, "worse": 0}
            for row, before, after in zip(rows, with_all, without, strict=True):
                if (now := after[maker]) != (then := before[maker]):
                    passed, passes_now = then is not None and passes(row, then), now is not None and passes(row, now)
                    count["changed"] += 1
                    count["better"] += passed and not passes_now
                    count["worse"] += passes_now and not passed
            found[maker] = count
        yield rule, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=Path, required=True, help="of `benchmarks.plans --write`: the model's texts")
    parser.add_argument("--cases", type=Path, required=True, help="behaviour cases, beside the program that judges all")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--only", default="", help="a regular expression: rules whose place it matches")
    parser.add_argument(
        "--earlier", type=Path, nargs="*", default=[], help="files of this command: their counts of other rules stand"
    )
    parser.add_argument(
        "--dev", action="store_true", help="count over all questions of the file, not only of the cases"
    )
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.plans.read_text(encoding="utf-8").splitlines()]
    judged = _judged(arguments.cases)
    rows = [row for row in rows if arguments.dev or (row["query"], *row["history"]) in judged]

    def passes(row: dict[str, Any], plan: str) -> bool:
        return all(judge(json.loads(plan)) for judge in judged.get((row["query"], *row["history"]), ()))

    found = _earlier(arguments.earlier, arguments.only)
    for rule, count in counts(rows, arguments.model, passes, lambda rule: bool(re.search(arguments.only, str(rule)))):
        found[str(rule)] = count
        told = "; ".join(f"by {maker} {' '.join(f'{n} {k}' for k, n in one.items())}" for maker, one in count.items())
        print(f"{rule}: {told}", flush=True)
    figure = {"command": "make eval", "questions": len(rows), "rules": found}
    arguments.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")


def _earlier(files: list[Path], only: str) -> dict[str, Any]:
    """Return the counts of rules that still stand and are not counted again."""
    kept = {str(rule) for rule in rules() if not re.search(only, str(rule))}
    figures = (json.loads(path.read_text(encoding="utf-8"))["rules"] for path in files)
    return {name: count for figure in figures for name, count in figure.items() if name in kept}


def _judged(cases: Path) -> dict[tuple[str, ...], list[Callable[[dict[str, Any]], bool]]]:
    """Return what judges the plan of each question of the cases, by its query and history."""
    from benchmarks.behaviour import checker

    holds = checker(cases)

    def expected(expect: list[Any], plan: dict[str, Any]) -> bool:
        return all(holds(plan, assertion) for assertion in expect)

    def fair(intents: list[str], plan: dict[str, Any]) -> bool:
        return plan["intent"] in intents

    found: dict[tuple[str, ...], list[Callable[[dict[str, Any]], bool]]] = {}
    folder = Path(__file__).with_name("cases")
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            asked = (case["query"], *case.get("history", ()))
            found.setdefault(_cleaned(asked), []).append(partial(expected, case["expect"]))
    for line in (folder / "scope.tsv").read_text(encoding="utf-8").splitlines():
        _, intents, text = line.split("\t")
        found.setdefault(_cleaned((text,)), []).append(partial(fair, intents.split("|")))
    return found


def _cleaned(utterances: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(text.split()) for text in utterances)


if __name__ == "__main__":
    main()
