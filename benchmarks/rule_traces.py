"""Which questions each rule is asked about and does not say no to: no other question can change when it is taken away.

A process is made in which every rule notes what it answers. A word of a section or collection notes that a text turned
out to be it, a phrase that it was found, a pattern that it matched, and a function that its answer was not the one of
`rule_list.take_away`. Each question is planned in a process forked off that one, so that nothing that was remembered of
another question hides a rule. A rule that is used in any other way, or for more than one question at once (a list that
becomes part of a regular expression while the files are read), is `woven`: all questions are planned again for it.
"""

import gc
import os
import re
import sys
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import isgenerator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any

from benchmarks.rule_list import PLANNER, Rule, import_rooms, is_function, put_in_place_of, says_nothing
from benchmarks.rule_notes import CONSULTED, Dict, Label, List, Pattern, Set, Tuple, Word, noting

_BESIDE = os.cpu_count() or 1  # processes
_LOOKED_INTO = r"(?:starts|ends)with\({}\)"  # of a text: they look into a tuple and ask it nothing


@dataclass(slots=True)
class Touched:
    """The questions, by index, that a rule may change; all of them for a rule that is `woven`.

    `reads_files` are constants and functions that are used as the files are read, before any question.
    """

    questions: dict[Rule, list[int]] = field(default_factory=dict)
    woven: set[Rule] = field(default_factory=set)
    reads_files: set[Rule] = field(default_factory=set)


def trace(
    rows: Sequence[Any], plan: Callable[[Any], object], every: Sequence[Rule], prepare: Callable[[], None]
) -> Touched:
    """Return what each rule may change of the rows' plans. The rooms of the process must not be imported yet."""
    _note_sections(set(every))
    import_rooms()
    from service.planner.fallback.reading.en.reader import ENGLISH
    from service.planner.fallback.reading.readers import READERS

    for rule in every:
        if not rule.is_section:
            _note_python(rule)
    for reader in (*READERS.values(), ENGLISH):
        reader.prepare()
    sections = {rule for rule in CONSULTED if rule.is_section}
    prepare()  # which language a section's words tell is looked at apart
    used = {rule for rule in CONSULTED if not rule.is_section}
    untraceable = {rule for rule in every if _is_untraceable(rule)}
    touched = Touched(
        woven=sections.intersection(every) | untraceable, reads_files=used.intersection(every) - untraceable
    )
    numbers = {rule: number for number, rule in enumerate(every)}
    gc.freeze()  # a process of one question is to copy little
    running = deque[tuple[int, Connection, int]]()
    for at, row in enumerate(rows):
        running.append((at, *_started(row, plan, numbers)))
        if len(running) > _BESIDE:
            _end(*running.popleft(), every, touched)
    while running:
        _end(*running.popleft(), every, touched)
    return touched


def _started(row: Any, plan: Callable[[Any], object], numbers: dict[Rule, int]) -> tuple[Connection, int]:
    """Plan a row in a process that sends the numbers of the rules which it consulted."""
    reading, writing = Pipe(duplex=False)
    if not (child := os.fork()):
        try:
            CONSULTED.clear()
            plan(row)
            writing.send([numbers[rule] for rule in CONSULTED if rule in numbers])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    writing.close()
    return reading, child


def _end(at: int, reading: Connection, child: int, every: Sequence[Rule], touched: Touched) -> None:
    try:
        for number in reading.recv():
            touched.questions.setdefault(every[number], []).append(at)
    finally:
        reading.close()
        os.waitpid(child, 0)


def _is_untraceable(rule: Rule) -> bool:
    source = (PLANNER / rule.file).read_text(encoding="utf-8") if rule.file.endswith(".py") else ""
    return bool(re.search(_LOOKED_INTO.format(re.escape(rule.name)), source))


def _note_sections(every: set[Rule]) -> None:
    """Have the words, phrases and patterns of every section note that they are found."""
    from service.planner.fallback.reading.language_data import LanguageData
    from service.planner.fallback.reading.phrase_file import Trie

    listed: dict[tuple[str, str], set[Rule]] = defaultdict(set)  # by language and text
    plain = {name: getattr(LanguageData, name) for name in ("words", "spelt", "phrases", "table", "patterns")}

    def rules_of(data: Any, name: str) -> set[Rule]:
        places = (f"reading/{data.language}/phrases.txt", "reading/shared.txt", f"reading/{data.language}/patterns.txt")
        return {rule for place in places if (rule := Rule(place, f"[{name}]")) in every}

    def word(data: Any, name: str, text: str) -> Word:
        rules = listed[data.language, text]
        rules |= rules_of(data, name)
        return Word(text, rules)

    def collected(method: str, kind: Any) -> Callable[[Any, str], Any]:
        def read(data: Any, name: str) -> Any:
            found = kind(word(data, name, text) for text in plain[method](data, name))
            found.rules = rules_of(data, name)
            return found

        return read

    def table(data: Any, name: str) -> Any:
        found = Dict((word(data, name, text), value) for text, value in plain["table"](data, name).items())
        found.rules = rules_of(data, name)
        return found

    def patterns(data: Any, prefix: str) -> list[tuple[str, Pattern]]:
        found = plain["patterns"](data, prefix)
        return [(name, Pattern(pattern, rules_of(data, prefix + name))) for name, pattern in found]

    for method, kind in (("words", Set), ("spelt", Set), ("phrases", List)):
        setattr(LanguageData, method, collected(method, kind))
    LanguageData.table = table  # type: ignore[method-assign, assignment]
    LanguageData.patterns = patterns  # type: ignore[method-assign, assignment]
    build = Trie.__init__

    def labelled(self: Any, phrases: dict[str, str], **options: Any) -> None:
        labels: dict[str, str] = {}
        for phrase, name in dict.items(phrases):
            label = Label(name)
            label.rules = phrase.rules if isinstance(phrase, Word) else set()
            labels[phrase] = label
        build(self, labels, **options)

    Trie.__init__ = labelled  # type: ignore[method-assign]


def _note_python(rule: Rule) -> None:
    """Have a constant or function note that it says something."""
    module = sys.modules[rule.module]
    *owners, name = rule.name.split(".")
    if owners:
        owner = getattr(module, owners[0])
        setattr(owner, name, _noting_method(owner.__dict__[name], rule))
        return
    value = getattr(module, name)
    noting = _noting_function(value, rule) if is_function(value) else _noting_value(value, rule)
    if noting is not None:
        put_in_place_of(value, name, noting)


def _noting_value(value: Any, rule: Rule) -> Any:
    from service.planner.fallback.reading.phrase_file import Trie

    if isinstance(value, re.Pattern | Trie | Pattern):
        return Pattern(value, {rule})
    found: Any
    if isinstance(value, frozenset):
        found = Set(_also(item, rule) for item in frozenset.__iter__(value))
    elif type(value) in (dict, Dict):
        found = Dict((_also(key, rule), item) for key, item in dict.items(value))
    elif type(value) in (tuple, list):
        found = Tuple(value) if isinstance(value, tuple) else _noting_list(value)
    else:
        return None
    found.rules = {rule, *getattr(value, "rules", ())}
    return found


def _noting_list(value: list[Any]) -> Any:
    return noting(list, ("__iter__", "__len__", "__getitem__", "__contains__"))(value)


def _also(item: Any, rule: Rule) -> Any:
    return Word(item, {rule, *getattr(item, "rules", ())}) if isinstance(item, str) else item


def _noting_function(function: Any, rule: Rule) -> Callable[..., Any]:
    def noting(*arguments: Any, **named: Any) -> Any:
        try:
            answer = function(*arguments, **named)
        except BaseException:
            CONSULTED.add(rule)
            raise
        if isgenerator(answer):
            return _noting_items(answer, rule)
        if not says_nothing(rule, answer):
            CONSULTED.add(rule)
        return answer

    return wraps(function)(noting) if isinstance(function, FunctionType) else noting


def _noting_items(items: Iterator[Any], rule: Rule) -> Iterator[Any]:
    for item in items:
        CONSULTED.add(rule)
        yield item


def _noting_method(method: Any, rule: Rule) -> Any:
    if isinstance(method, property | cached_property):
        return property(_noting_function(lambda self: method.__get__(self, type(self)), rule))
    if isinstance(method, staticmethod):
        return staticmethod(_noting_function(method.__func__, rule))
    return _noting_function(method, rule)
