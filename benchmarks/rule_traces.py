"""Which questions each rule is asked about and does not say no to: no other question can change when it is taken away.

A process is made in which every rule notes what it answers. A word of a section or collection notes that a text turned
out to be it, a phrase that it was found, a pattern that it matched, and a function that its answer was not the one of
`rule_list.take_away`. Each question is planned in a process forked off that one, so that nothing that was remembered of
another question hides a rule. A rule that is used in any other way, or for more than one question at once (a list that
becomes part of a regular expression while the files are read), is `woven`: all questions are planned again for it.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import isgenerator
from multiprocessing import Pipe
from types import FunctionType
from typing import Any

from benchmarks.rule_list import PLANNER, Rule, import_rooms, put_in_place_of, says_nothing

_CONSULTED: set[Rule] = set()
_LOOKED_INTO = r"(?:starts|ends)with\({}\)"  # of a text: they look into a tuple and ask it nothing


@dataclass(slots=True)
class Touched:
    """The questions, by index, that a rule may change; all of them for a rule that is `woven`."""

    questions: dict[Rule, list[int]] = field(default_factory=dict)
    woven: set[Rule] = field(default_factory=set)


class _Word(str):
    """A listed word, or a phrase; `rules` are the places that list it."""

    rules: set[Rule]
    __hash__ = str.__hash__

    def __new__(cls, text: str, rules: set[Rule]) -> "_Word":
        self = super().__new__(cls, text)
        self.rules = rules
        return self

    def __eq__(self, other: object) -> bool:
        return self._noted(str.__eq__(self, other), other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _noted(self, is_it: bool, other: object) -> bool:
        if is_it is True and not isinstance(other, _Word):  # two listed words meet as lists are put together
            _CONSULTED.update(self.rules)
        return is_it


class _Label(str):
    """The label of a phrase in a trie, which makes a text of it when it is found."""

    rules: set[Rule]

    def __str__(self) -> str:
        _CONSULTED.update(self.rules)
        return str.__str__(self)


def _noting(base: type, methods: Iterable[str]) -> type:
    """Return a subclass of a collection whose methods note that it is used, whatever they answer."""

    def noted(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            _CONSULTED.update(self.rules)
            return getattr(base, name)(self, *arguments)

        return method

    return type(f"Noting{base.__name__}", (base,), {name: noted(name) for name in methods})


_Set: Any = _noting(frozenset, ("__iter__", "__len__"))
_List: Any = _noting(list, ("__len__", "__getitem__"))
_Dict: Any = _noting(dict, ("__iter__", "__len__", "items", "keys", "values"))
_Tuple: Any = _noting(tuple, ("__iter__", "__len__", "__getitem__", "index", "count", "__add__", "__radd__"))
_Tuple.__contains__ = lambda self, item: _note_if(tuple.__contains__(self, item), self.rules)


def _note_if(answer: Any, rules: Iterable[Rule]) -> Any:
    if answer:
        _CONSULTED.update(rules)
    return answer


class _Pattern:
    """A compiled pattern, or a trie; what it does not find, it does not find without its rule either."""

    def __init__(self, inner: Any, rules: set[Rule]) -> None:
        self._inner = inner
        self._rules = rules

    def search(self, *arguments: Any) -> Any:
        return _note_if(self._inner.search(*arguments), self._rules)

    def match(self, *arguments: Any) -> Any:
        return _note_if(self._inner.match(*arguments), self._rules)

    def fullmatch(self, *arguments: Any) -> Any:
        return _note_if(self._inner.fullmatch(*arguments), self._rules)

    def finditer(self, *arguments: Any) -> Any:
        return iter(_note_if(list(self._inner.finditer(*arguments)), self._rules))

    def sub(self, instead: Any, text: str, *arguments: Any) -> str:
        found: str = self._inner.sub(instead, text, *arguments)
        _note_if(found != text, self._rules)
        return found

    def __getattr__(self, name: str) -> Any:
        if name != "starts":  # of a trie: where it may be asked, no more
            _CONSULTED.update(self._rules)
        return getattr(self._inner, name)


def trace(
    rows: Sequence[Any], plan: Callable[[Any], object], every: Sequence[Rule], prepare: Callable[[], None]
) -> Touched:
    """Return what each rule may change of the rows' plans. The rooms of the process must not be imported yet."""
    _note_sections(set(every))
    import_rooms()
    from service.planner.reading import readers

    for rule in every:
        if not rule.is_section:
            _note_python(rule)
    for reader in (*readers.READERS.values(), readers.ENGLISH):
        reader.prepare()
    woven = {rule for rule in every if _is_untraceable(rule)} | _CONSULTED
    prepare()
    woven |= {rule for rule in _CONSULTED if not rule.is_section}  # which language a section tells is looked at apart
    touched = Touched(woven=woven & {*every})
    numbers = {rule: number for number, rule in enumerate(every)}
    for at, row in enumerate(rows):
        for number in _consulted(row, plan, numbers):
            touched.questions.setdefault(every[number], []).append(at)
    return touched


def _consulted(row: Any, plan: Callable[[Any], object], numbers: dict[Rule, int]) -> list[int]:
    reading, writing = Pipe(duplex=False)
    if not (child := os.fork()):
        try:
            _CONSULTED.clear()
            plan(row)
            writing.send([numbers[rule] for rule in _CONSULTED if rule in numbers])
        finally:
            os._exit(0)
    writing.close()
    try:
        found: list[int] = reading.recv()
    finally:
        reading.close()
        os.waitpid(child, 0)
    return found


def _is_untraceable(rule: Rule) -> bool:
    source = (PLANNER / rule.file).read_text(encoding="utf-8") if rule.file.endswith(".py") else ""
    return bool(re.search(_LOOKED_INTO.format(re.escape(rule.name)), source))


def _note_sections(every: set[Rule]) -> None:
    """Have the words, phrases and patterns of every section note that they are found."""
    from service.planner.reading.language_data import LanguageData
    from service.planner.reading.phrase_file import Trie

    listed: dict[tuple[str, str], set[Rule]] = defaultdict(set)  # by language and text
    plain = {name: getattr(LanguageData, name) for name in ("words", "spelt", "phrases", "table", "patterns")}

    def rules_of(data: Any, name: str) -> set[Rule]:
        places = (f"reading/{data.language}/phrases.txt", "reading/shared.txt", f"reading/{data.language}/patterns.txt")
        return {rule for place in places if (rule := Rule(place, f"[{name}]")) in every}

    def word(data: Any, name: str, text: str) -> _Word:
        rules = listed[data.language, text]
        rules |= rules_of(data, name)
        return _Word(text, rules)

    def collected(method: str, kind: Any) -> Callable[[Any, str], Any]:
        def read(data: Any, name: str) -> Any:
            found = kind(word(data, name, text) for text in plain[method](data, name))
            found.rules = rules_of(data, name)
            return found

        return read

    def table(data: Any, name: str) -> Any:
        found = _Dict((word(data, name, text), value) for text, value in plain["table"](data, name).items())
        found.rules = rules_of(data, name)
        return found

    def patterns(data: Any, prefix: str) -> list[tuple[str, _Pattern]]:
        found = plain["patterns"](data, prefix)
        return [(name, _Pattern(pattern, rules_of(data, prefix + name))) for name, pattern in found]

    for method, kind in (("words", _Set), ("spelt", _Set), ("phrases", _List)):
        setattr(LanguageData, method, collected(method, kind))
    LanguageData.table = table  # type: ignore[method-assign]
    LanguageData.patterns = patterns  # type: ignore[method-assign, assignment]
    build = Trie.__init__

    def labelled(self: Any, phrases: dict[str, str], **options: Any) -> None:
        labels = {}
        for phrase, name in dict.items(phrases):
            labels[phrase] = label = _Label(name)
            label.rules = phrase.rules if isinstance(phrase, _Word) else set()
        build(self, labels, **options)

    Trie.__init__ = labelled  # type: ignore[method-assign]


def _note_python(rule: Rule) -> None:
    """Have a constant or function note that it says something."""
    import sys

    module = sys.modules[rule.module]
    *owners, name = rule.name.split(".")
    if owners:
        owner = getattr(module, owners[0])
        setattr(owner, name, _noting_method(owner.__dict__[name], rule))
        return
    value = getattr(module, name)
    is_function = callable(value) and not isinstance(value, _Pattern)
    noting = _noting_function(value, rule) if is_function else _noting_value(value, rule)
    if noting is not None:
        put_in_place_of(value, name, noting)


def _noting_value(value: Any, rule: Rule) -> Any:
    from service.planner.reading.phrase_file import Trie

    if isinstance(value, re.Pattern | Trie | _Pattern):
        return _Pattern(value, {rule})
    found: Any
    if isinstance(value, frozenset):
        found = _Set(_also(item, rule) for item in frozenset.__iter__(value))
    elif type(value) in (dict, _Dict):
        found = _Dict((_also(key, rule), item) for key, item in dict.items(value))
    elif type(value) in (tuple, list):
        found = _Tuple(value) if isinstance(value, tuple) else _noting_list(value)
    else:
        return None
    found.rules = {rule, *getattr(value, "rules", ())}
    return found


def _noting_list(value: list[Any]) -> Any:
    return _noting(list, ("__iter__", "__len__", "__getitem__", "__contains__"))(value)


def _also(item: Any, rule: Rule) -> Any:
    return _Word(item, {rule, *getattr(item, "rules", ())}) if isinstance(item, str) else item


def _noting_function(function: Any, rule: Rule) -> Callable[..., Any]:
    def noting(*arguments: Any, **named: Any) -> Any:
        try:
            answer = function(*arguments, **named)
        except BaseException:
            _CONSULTED.add(rule)
            raise
        if isgenerator(answer):
            return _noting_items(answer, rule)
        if not says_nothing(rule, answer):
            _CONSULTED.add(rule)
        return answer

    return wraps(function)(noting) if isinstance(function, FunctionType) else noting


def _noting_items(items: Iterator[Any], rule: Rule) -> Iterator[Any]:
    for item in items:
        _CONSULTED.add(rule)
        yield item


def _noting_method(method: Any, rule: Rule) -> Any:
    if isinstance(method, property | cached_property):
        return property(_noting_function(lambda self: method.__get__(self, type(self)), rule))
    if isinstance(method, staticmethod):
        return staticmethod(_noting_function(method.__func__, rule))
    return _noting_function(method, rule)
