"""docs/suite.md shows each area's share, and each survivor with its reason."""

from benchmarks.mutants_table import render_mutants


def test_survivors_are_told_with_why_they_change_nothing() -> None:
    killed = {"seed": 7, "tried": 40, "noticed": 37, "date": "2026-11-23"}
    survivors = [
        {"file": "a.py", "function": "f", "before": "x = `1` + 1", "after": ""},
        {"file": "a.py", "function": "", "before": "A" * 500, "after": "B"},
        {"file": "a.py", "function": "", "before": "A", "after": "C", "since": "It has a test now."},
    ]
    reasons = {("a.py", "f", "x = `1` + 1", ""): "Nobody reads x."}
    lines = render_mutants({"gateway": {**killed, "survivors": survivors}}, reasons).splitlines()
    assert "| gateway | 40 | 37 | 0.925 | 1 | 0.949 | 7 | 2026-11-23 |" in lines
    assert "- a.py, f: `x = '1' + 1` became `nothing`. Nobody reads x." in lines
    assert f"- a.py: `{'A' * 160} …` became `B`. No test noticed it then." in lines
    assert "- a.py: `A` became `C`. It has a test now." in lines


def test_where_nothing_survived_that_is_said() -> None:
    row = {"seed": 7, "tried": 9, "noticed": 9, "date": "2026-11-23", "survivors": []}
    assert render_mutants({"sizing": row}, {}).endswith("- nothing")
