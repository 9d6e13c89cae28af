"""docs/suite.md shows each area's share, and each survivor with its reason."""

from benchmarks.mutants_table import render_mutants


def test_survivors_are_told_with_why_they_change_nothing() -> None:
    killed = {"seed": 7, "tried": 40, "noticed": 38, "date": "2026-11-23", "commit": "abc1234"}
    survivors = [
        {"file": "a.py", "function": "f", "before": "x = `1` + 1", "after": "", "why": "Nobody reads x."},
        {"file": "a.py", "function": "", "before": "A" * 500, "after": "B", "why": ""},
    ]
    lines = render_mutants({"gateway": {**killed, "survivors": survivors}}).splitlines()
    assert "| gateway | 40 | 38 | 0.95 | 7 | 2026-11-23, abc1234 |" in lines
    assert "- a.py, f: `x = '1' + 1` became `nothing`. Nobody reads x." in lines
    assert f"- a.py: `{'A' * 160} …` became `B`. No test notices it yet." in lines


def test_where_nothing_survived_that_is_said() -> None:
    row = {"seed": 7, "tried": 9, "noticed": 9, "date": "2026-11-23", "commit": "abc1234", "survivors": []}
    assert render_mutants({"sizing": row}).endswith("- nothing")
