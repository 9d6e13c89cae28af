"""Words, collections and patterns that note the rules they stand for when they say anything (`rule_traces`)."""

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.rule_list import Rule

CONSULTED: set[Rule] = set()


class Word(str):
    """A listed word, or a phrase; `rules` are the places that list it."""

    rules: set[Rule]
    __hash__ = str.__hash__

    def __new__(cls, text: str, rules: set[Rule]) -> "Word":
        self = super().__new__(cls, text)
        self.rules = rules
        return self

    def __eq__(self, other: object) -> bool:
        return self._noted(str.__eq__(self, other), other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _noted(self, is_it: bool, other: object) -> bool:
        if is_it is True and not isinstance(other, Word):  # two listed words meet as lists are put together
            CONSULTED.update(self.rules)
        return is_it


class Label(str):
    """The label of a phrase in a trie, which makes a text of it when it is found."""

    rules: set[Rule]

    def __str__(self) -> str:
        CONSULTED.update(self.rules)
        return str.__str__(self)


def noting(base: type, methods: Iterable[str]) -> type:
    """Return a subclass of a collection whose methods note that it is used, whatever they answer."""

    def noted(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            CONSULTED.update(self.rules)
            return getattr(base, name)(self, *arguments)

        return method

    return type(f"Noting{base.__name__}", (base,), {name: noted(name) for name in methods})


Set: Any = noting(frozenset, ("__iter__", "__len__"))
List: Any = noting(list, ("__len__", "__getitem__"))
Dict: Any = noting(dict, ("__iter__", "__len__", "items", "keys", "values"))
Tuple: Any = noting(tuple, ("__iter__", "__len__", "__getitem__", "index", "count", "__add__", "__radd__"))
Tuple.__contains__ = lambda self, item: note_if(tuple.__contains__(self, item), self.rules)


def note_if(answer: Any, rules: Iterable[Rule]) -> Any:
    if answer:
        CONSULTED.update(rules)
    return answer


class Pattern:
    """A compiled pattern, or a trie; what it does not find, it does not find without its rule either."""

    def __init__(self, inner: Any, rules: set[Rule]) -> None:
        self._inner = inner
        self._rules = rules

    def search(self, *arguments: Any) -> Any:
        return note_if(self._inner.search(*arguments), self._rules)

    def match(self, *arguments: Any) -> Any:
        return note_if(self._inner.match(*arguments), self._rules)

    def fullmatch(self, *arguments: Any) -> Any:
        return note_if(self._inner.fullmatch(*arguments), self._rules)

    def finditer(self, *arguments: Any) -> Any:
        return iter(note_if(list(self._inner.finditer(*arguments)), self._rules))

    def sub(self, instead: Any, text: str, *arguments: Any) -> str:
        found: str = self._inner.sub(instead, text, *arguments)
        note_if(found != text, self._rules)
        return found

    def __getattr__(self, name: str) -> Any:
        if name != "starts":  # of a trie: where it may be asked, no more
            CONSULTED.update(self._rules)
        return getattr(self._inner, name)
