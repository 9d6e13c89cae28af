"""The judge is judged: what is changed, what is drawn, and that a mutant is told from what changes nothing."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutants import __main__ as judge
from tests.mutants.areas import AREAS, REPOSITORY
from tests.mutants.operations import Mutant, mutants
from tests.mutants.warm import IMPORTED, Baseline, Workshop
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


def test_a_mutant_dies_where_its_tests_fail_and_everything_is_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = Workshop(tmp_path)
    file, tests = "infra/fleet/roofline.py", ["tests/infra/fleet/test_roofline.py"]
    source = (workshop.root / file).read_text(encoding="utf-8")
    baseline = workshop.baseline(tests, [file], 300)
    assert baseline.passed
    assert any(name.endswith("a_forward") for name in baseline.entered[file, _line(source, "def plan_bytes")])
    half, comment = source.replace("planner.layer_bytes / 2", "planner.layer_bytes / 3"), source + "# and no more\n"
    for text, alive, limit in ((half, False, 60), (comment, True, 60), ("syntax error", False, 60), (HANGS, False, 3)):
        with workshop.changed(file, text):
            assert workshop.passes(["-x", *tests], limit) is alive
    told = capsys.readouterr().out
    assert told.count("stopped after 3 s") == 1
    with workshop.changed(file, HANGS):
        assert not workshop.passes(["-x", *tests], PATIENCE, processor=2)
    assert "stopped after" not in capsys.readouterr().out, "who loops is stopped by the processor's clock"
    assert (workshop.root / file).read_text(encoding="utf-8") == source
    assert (REPOSITORY / file).read_text(encoding="utf-8") == source


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
