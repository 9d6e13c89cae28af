"""The judge is judged: what is changed, what is drawn, and that a mutant is told from what changes nothing."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutants import __main__ as judge
from tests.mutants.areas import AREAS, REPOSITORY
from tests.mutants.operations import Mutant, mutants
from tests.mutants.warm import IMPORTED, Baseline, Outcome, Workshop
from tests.processes import PATIENCE

HANGS = "while True: pass"
SOURCE = '''
LIMIT = 10


def few(numbers: list[int | float], *, strict: bool = True) -> int:
    """Return how many are few."""
    assert LIMIT > 0
    if strict and not numbers:
        raise ValueError("none")
    return sum(1 for number in numbers if number < LIMIT)
'''


def test_each_statement_is_changed_in_its_operations() -> None:
    changes = {(mutant.function, mutant.before, mutant.after) for mutant in mutants("few.py", SOURCE)}
    head = "def few(numbers: list[int | float], *, strict: bool=True) -> int:"
    counted = "return sum((1 for number in numbers if number < LIMIT))"
    assert changes == {
        ("", "LIMIT = 10", "LIMIT = 20"),
        ("", "LIMIT = 10", "LIMIT = 5"),
        ("", head, head.replace("True", "False")),
        ("few", "if strict and (not numbers):", "if not (strict and (not numbers)):"),
        ("few", "if strict and (not numbers):", "if strict or not numbers:"),
        ("few", "if strict and (not numbers):", "if strict:"),
        ("few", "if strict and (not numbers):", "if not numbers:"),
        ("few", "if strict and (not numbers):", "if strict and numbers:"),
        ("few", "raise ValueError('none')", ""),
        ("few", counted, "return"),
        ("few", counted, counted.replace("sum((1", "sum((2")),
        ("few", counted, counted.replace("sum((1", "sum((0")),
        ("few", counted, counted.replace(" if number < LIMIT", "")),
        ("few", counted, counted.replace("<", "<=")),
        ("few", counted, counted.replace("<", ">=")),
    }
    for mutant in mutants("few.py", SOURCE):
        compile(mutant.source, "few.py", "exec")


def test_a_seed_draws_the_same_sample_and_another_one_another() -> None:
    drawn = judge.sample("sizing", 1, 5)
    assert [mutant.key for mutant in drawn] == [mutant.key for mutant in judge.sample("sizing", 1, 5)]
    assert [mutant.key for mutant in drawn] != [mutant.key for mutant in judge.sample("sizing", 2, 5)]
    assert len(drawn) == 5


def test_when_the_time_is_up_what_was_tried_of_a_sample_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [0.0], judge.sample("sizing", 3, 9)

    def survives(mutant: Mutant, *_: object) -> bool:
        now[0] += 1.0
        return mutant.key == drawn[1].key

    monkeypatch.setattr(judge, "_prepared", lambda *_: (SimpleNamespace(root=REPOSITORY), Baseline()))
    monkeypatch.setattr(judge, "survives", survives)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    row = judge.judge("sizing", 3, 9, seconds=4.0)
    assert (row["tried"], row["noticed"]) == (4, 3)
    assert [told["after"] for told in row["survivors"]] == [drawn[1].after]
    with pytest.raises(SystemExit, match="give it longer"):
        judge.judge("sizing", 3, 9, seconds=0.0)


def test_runs_side_by_side_keep_each_other_s_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = tmp_path / "mutants.json"

    def judged(name: str, *_: object) -> dict[str, str]:
        figure.write_text(json.dumps({"client": {"by": "another run"}}), "utf-8")
        return {"by": name}

    monkeypatch.setattr(judge, "judge", judged)
    monkeypatch.setattr("sys.argv", ["mutants", "sizing", "--output", str(figure)])
    judge.main()
    assert json.loads(figure.read_text("utf-8")) == {"client": {"by": "another run"}, "sizing": {"by": "sizing"}}


@pytest.mark.parametrize("area", AREAS)
def test_the_files_and_tests_of_an_area_are_there(area: str) -> None:
    assert len(AREAS[area].files()) > 0
    assert all((REPOSITORY / path).exists() for path in (*AREAS[area].sources, *AREAS[area].tests))


def test_who_enters_what_changed_is_asked_the_file_that_mirrors_it_first() -> None:
    entered = {
        ("a/pool.py", 3): {"t/test_api.py::x", "t/test_pool.py::y"},
        ("a/pool.py", 9): {IMPORTED, "t/test_api.py::x"},
    }
    baseline = Baseline(entered, {"t/test_api.py::x": 0.1, "t/test_pool.py::y": 2.0, "t/test_z.py::z": 1.0})
    of = {mutant.function: mutant for mutant in mutants("a/pool.py", "def f():\n    return g() + 1\n")}["f"]

    def asked(starts: int) -> list[str]:
        return judge.judging(type(of)(**{**vars(of), "starts": starts}), baseline)

    assert asked(3) == ["t/test_pool.py::y", "t/test_api.py::x"]
    every = ["t/test_pool.py::y", "t/test_api.py::x", "t/test_z.py::z"]
    assert [asked(9), asked(5), asked(0)] == [every] * 3, "computed at import, entered by none, or of the module"


@pytest.mark.slow
def test_a_mutant_dies_where_its_tests_fail_and_everything_is_as_before(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    file, tests = "infra/fleet/roofline.py", ["tests/infra/fleet/test_roofline.py"]
    source = (workshop.root / file).read_text(encoding="utf-8")
    baseline = workshop.baseline(tests, [file], 300)
    assert baseline.passed
    assert any(name.endswith("a_forward") for name in baseline.entered[file, _line(source, "def plan_bytes")])
    half, comment = source.replace("planner.layer_bytes / 2", "planner.layer_bytes / 3"), source + "# and no more\n"
    passed, failed, stopped = Outcome.PASSED, Outcome.FAILED, Outcome.STOPPED
    for text, outcome, limit in ((half, failed, 60), (comment, passed, 60), ("syntax error", failed, 60),
                                 (HANGS, stopped, 3)):  # fmt: skip
        with workshop.changed(file, text):
            assert workshop.run(["-x", *tests], limit) is outcome
            assert bool(workshop.last_begun) is (text in (half, comment))
    with workshop.changed(file, HANGS):  # who loops is stopped by the processor's clock
        assert workshop.run(["-x", *tests], PATIENCE, processor=2) is failed
    assert (workshop.root / file).read_text(encoding="utf-8") == source
    assert (REPOSITORY / file).read_text(encoding="utf-8") == source


class BusyMachine:
    """A workshop whose runs end as told, one after another: those with the change and those without any."""

    def __init__(self, changed: str, unchanged: str) -> None:
        self._ends = {True: iter(changed), False: iter(unchanged)}
        self._is_changed = False
        self.last_begun = ""
        self.asked: list[list[str]] = []

    @contextlib.contextmanager
    def changed(self, _file: str, _source: str) -> Iterator[None]:
        self._is_changed = True
        yield
        self._is_changed = False

    def run(self, arguments: list[str], *_: object, **__: object) -> Outcome:
        self.asked.append([each for each in arguments if not each.startswith("-")])
        self.last_begun = "t/test_f.py::slow[2]"
        return {"p": Outcome.PASSED, "f": Outcome.FAILED, "s": Outcome.STOPPED}[next(self._ends[self._is_changed])]


@pytest.mark.parametrize(
    ("changed", "unchanged", "survives"),
    [
        ("p", "", True),
        ("ff", "p", False),
        ("ss", "p", False),  # it hangs, and what hangs passes with nothing changed
        ("ssssp", "ss", True),  # nothing had time to pass, and then it had
        ("fpp", "", True),  # it failed once, and never again
        ("ffssff", "fsf", None),
    ],
)
def test_what_fails_for_want_of_a_processor_notices_nothing(
    changed: str, unchanged: str, survives: bool | None
) -> None:
    names = ["t/test_f.py::quick", "t/test_f.py::slow"]
    times = dict(zip(names, (0.1, 2.0), strict=True))
    baseline = Baseline({("f.py", 1): set(names)}, seconds=times, processor=times, passed=True)
    mutant = next(each for each in mutants("f.py", "def f():\n    return 1 < 2\n") if each.function == "f")
    machine = BusyMachine(changed, unchanged)
    assert judge.survives(mutant, machine, baseline) is survives  # type: ignore[arg-type]
    assert machine.asked[0] == names
    assert all(asked in (names, ["t/test_f.py::slow[2]"]) for asked in machine.asked), "who failed is asked alone"


def test_who_is_undecided_is_neither_noticed_nor_a_survivor(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = judge.sample("sizing", 3, 4)
    fates = dict(zip((mutant.key for mutant in drawn), (False, None, True, False), strict=True))
    monkeypatch.setattr(judge, "_prepared", lambda *_: (SimpleNamespace(root=REPOSITORY), Baseline()))
    monkeypatch.setattr(judge, "survives", lambda mutant, *_: fates[mutant.key])
    row = judge.judge("sizing", 3, 4)
    assert (row["tried"], row["noticed"], row["undecided"]) == (3, 2, 1)
    again = judge.judge_again("sizing", {**row, "survivors": [judge._told(mutant) for mutant in drawn]})
    since = [told.get("since") for told in again["survivors"]]
    assert since == [judge.NOTICED, None, None, judge.NOTICED]


def _line(source: str, start: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if line.startswith(start))


def test_what_is_said_to_change_nothing_is_a_mutant_of_today_and_says_why() -> None:
    known = judge.reasons()
    files = {file for file, *_ in known}
    today = {mutant.key for file in files for mutant in mutants(file, (REPOSITORY / file).read_text(encoding="utf-8"))}
    assert set(known) <= today, "delete the line, or write it anew: the code has changed"
    assert all(len(why) > 20 for why in known.values())
    rows = [json.loads(line) for line in judge.UNCHANGED.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(known), "each once"
