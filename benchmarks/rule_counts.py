"""The plans that change, and the cases that pass or fail, where a rule of the planner is taken away.

Every rule (`rule_list`) is taken away alone, in a process of its own, and the questions that it may change
(`rule_traces`) are planned again: by rule, and of the texts that the model wrote once.
"""

import multiprocessing
import os
import re
import resource
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import rule_traces
from benchmarks.rule_list import PACKAGE, Rule, import_rooms, is_rule, rules, take_away

MAKERS = ("model", "rules")
# Of the processor, for one rule's plans; without a rule that ends a loop they would take for ever.
_SECONDS = 120
# Modules of the rooms that bind no section: a section's process keeps them, and the word list that one has read.
_WITHOUT_SECTIONS = frozenset(
    f"{PACKAGE}.reading.{name}" for name in ("tokens", "money", "phrases", "phrase_file", "en.spelling")
)
_ROOMS = (f"{PACKAGE}.reading.", f"{PACKAGE}.rules.", f"{PACKAGE}.making.")
Row = dict[str, Any]
Plans = dict[int, dict[str, str | None]]  # of rows, by their index
Counts = dict[str, dict[str, int]]
Passes = Callable[[Row, str], bool]


def counts(
    rows: list[Row], model: Path, passes: Passes, chosen: Callable[[Rule], bool] = lambda _: True, *, trace: bool = True
) -> Iterator[tuple[Rule, Counts]]:
    """Yield each rule with its counts, by model and by rules; `passes` judges a row's plan.

    Without `trace`, every question is planned again for every rule: the counts are the same, and take much longer.
    """
    reading, child = _forked(partial(_Ablation(rows, model, passes).counted, [*filter(chosen, rules())], trace=trace))
    try:
        while (counted := reading.recv()) is not None:
            yield counted
    finally:
        reading.close()
        os.waitpid(child, 0)


def _forked(items: Callable[[], Iterable[Any]]) -> tuple[Connection, int]:
    """Send items from a process of their own, None after the last; end of file where it fails or takes too long."""
    reading, writing = multiprocessing.Pipe(duplex=False)
    if not (child := os.fork()):
        code = 1
        try:
            reading.close()
            for item in items():
                writing.send(item)
            writing.send(None)
            code = 0
        except BrokenPipeError:  # who asked has heard enough
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    writing.close()
    return reading, child


def _one_of(items: Callable[[], Iterable[Any]]) -> Any:
    reading, child = _forked(items)
    try:
        return reading.recv()
    finally:
        reading.close()
        os.waitpid(child, 0)


@dataclass(slots=True)
class _Ablation:
    """The counting, in a process that imports the planner anew; each rule is taken away in one forked off it."""

    rows: list[Row]
    model: Path
    passes: Passes
    touched: rule_traces.Touched = field(default_factory=rule_traces.Touched)
    with_all: Plans = field(default_factory=dict)
    languages: list[list[str | None]] = field(default_factory=list)

    def counted(self, chosen: Sequence[Rule], *, trace: bool) -> Iterator[tuple[Rule, Counts]]:
        """Yield the rules with their counts, some at a time planned beside each other."""
        _without_rooms(keep=frozenset())
        if trace:
            maker = partial(_plans_of, self.model)
            self.touched = _one_of(lambda: [rule_traces.trace(self.rows, maker, chosen, _prepare)])
        else:
            self.touched.woven.update(chosen)
        _remember_what_is_compiled()
        import_rooms()
        _prepare()
        self.with_all = _one_of(lambda: [self._plans(range(len(self.rows)))])
        self.languages = _one_of(lambda: [self._languages()])
        running: deque[tuple[Rule, Sequence[int], Connection, int]] = deque()
        for rule in (rule for rule in chosen if is_rule(rule) and rule not in self.touched.reads_files):
            running.append((rule, *self._started(rule)))
            if len(running) > (os.cpu_count() or 1):
                yield from self._ended(*running.popleft())
        while running:
            yield from self._ended(*running.popleft())

    def _started(self, rule: Rule) -> tuple[Sequence[int], Connection, int]:
        """Return the rows that a rule may change, and the process that plans them without it."""
        questions = self.touched.questions.get(rule, [])
        is_woven = rule in self.touched.woven
        if is_woven:
            questions = [*range(len(self.rows))]
        return questions, *_forked(lambda: [self._without(rule, questions, is_woven=is_woven)])

    def _ended(
        self, rule: Rule, questions: Sequence[int], reading: Connection, child: int
    ) -> Iterator[tuple[Rule, Counts]]:
        try:
            without: Plans | None = reading.recv()
        except EOFError:
            without = {at: dict.fromkeys(MAKERS) for at in questions}
        finally:
            reading.close()
            os.waitpid(child, 0)
        if without is not None:
            yield rule, {maker: self._count(without, maker) for maker in MAKERS}

    def _count(self, without: Plans, maker: str) -> dict[str, int]:
        count = {"changed": 0, "better": 0, "worse": 0}
        for at, plans in without.items():
            row, then, now = self.rows[at], self.with_all[at][maker], plans[maker]
            if now != then:
                passed, passes_now = (plan is not None and self.passes(row, plan) for plan in (then, now))
                count["changed"] += 1
                count["better"] += passed and not passes_now
                count["worse"] += passes_now and not passed
        return count

    def _without(self, rule: Rule, questions: Sequence[int], *, is_woven: bool) -> Plans | None:
        """Return the plans of rows without a rule; None where it is no rule after all."""
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        tells_language = rule.is_section and not rule.file.startswith("reading/en/")
        if not (questions or tells_language):
            return {}
        if rule.is_section:
            kept = _detector()
            _without_rooms(keep=_WITHOUT_SECTIONS)
            take_away(rule)
            import_rooms()
            if not tells_language:
                _detector().__dict__.update(kept.__dict__ | {"_readers": _detector()._readers})
        else:
            if is_woven:
                _without_rooms(keep=frozenset())
                import_rooms()
            if not take_away(rule):
                return None
            _forget()
        if tells_language:
            now = self._languages()
            others = (at for at, languages in enumerate(now) if languages != self.languages[at])
            questions = sorted({*questions, *others})
        return self._plans(questions)

    def _plans(self, questions: Iterable[int]) -> Plans:
        maker = partial(_plans_of, self.model)
        return {at: maker(self.rows[at]) for at in questions}

    def _languages(self) -> list[list[str | None]]:
        """Return the language that each utterance of each row tells."""
        from service.planner.question import Question

        detector = _detector()
        asked = (Question.parse(row["query"], row["history"], row.get("locale")) for row in self.rows)
        return [[detector.language(text, one.language) for text in one.utterances] for one in asked]


def _plans_of(model: Path, row: Row) -> dict[str, str | None]:
    """Return the plans of a row; None for one that breaks without its rule."""
    from service.planner.fallback.making.plans import plan_by_rule, plan_from_text
    from service.planner.question import Question
    from service.planner.fallback.reading.conversation import Conversation

    makers: dict[str, Callable[..., Any]] = {"model": partial(plan_from_text, row["text"]), "rules": plan_by_rule}
    plans: dict[str, str | None] = {}
    for name, make in makers.items():
        try:
            conversation = Conversation(Question.parse(row["query"], row["history"], row.get("locale")))
            plans[name] = make(conversation, _vocabulary(model)).model_dump_json()
        except Exception:  # whatever breaks without the rule is a plan that it gave
            plans[name] = None
    return plans


@cache
def _vocabulary(model: Path) -> Any:
    from service.planner.vocabulary import Vocabulary

    return Vocabulary.load(model)


def _detector() -> Any:
    return sys.modules[f"{PACKAGE}.reading.readers"]._DETECTOR


def _prepare() -> None:
    """Have the files of all languages read."""
    sys.modules[f"{PACKAGE}.reading.readers"].prepare()
    _ = _detector()._trigrams


def _without_rooms(keep: frozenset[str]) -> None:
    """Forget the modules that lists and patterns are bound in, so that the next import binds them anew."""
    for name in [*sys.modules]:
        if (name.startswith(_ROOMS) or (not keep and name.startswith(PACKAGE))) and name not in keep:
            del sys.modules[name]


def _remember_what_is_compiled() -> None:
    """Compile a pattern and part a phrase once for all processes; nearly all are the same with each rule."""
    from service.planner.fallback.reading import tokens

    re.compile = cache(re.compile)
    tokens.tokens_of = cache(tokens.tokens_of)


def _forget() -> None:
    """Forget what was remembered of words and texts; what was read of files stays."""
    for module in [module for name, module in sys.modules.items() if name.startswith(_ROOMS)]:
        for value in vars(module).values():
            if type(value).__name__ == "Remembered":
                value.clear()
            elif hasattr(value, "cache_parameters") and value.cache_parameters()["maxsize"]:
                value.cache_clear()
    _detector()._told_by.cache_clear()
