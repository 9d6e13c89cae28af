"""The notebook of docs/examples, run from top to bottom with the client against a real service."""

import contextlib
import io
import json
import re
from typing import Any

import pytest

from tests.server_process import REPOSITORY

NOTEBOOK = json.loads((REPOSITORY / "docs/examples/plans.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def run_all() -> tuple[dict[str, Any], dict[str, str]]:
    """Run the cells in one namespace, as a kernel does; return it, and what each cell printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: dict[str, str] = {}
    for cell in CODE:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), namespace)
        printed[cell["id"]] = said.getvalue()
    return namespace, printed


def test_every_cell_does_what_its_text_says(planner_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKPLAN_URL", planner_url)
    names, printed = run_all()
    assert names["plan"].price.max == 80
    assert names["follow_up"].price.max == 80
    assert [isinstance(one, names["PlannerError"]) for one in names["planned"]] == [False, False, False, True]
    found = {row[0] for row in names["found"]}
    assert {"2", "3"} <= found <= {"1", "2", "3"}, "the fourth is dearer"
    assert "up to   80.0 USD" in printed["plan"]
    assert re.match("query - ", printed["error"])


def test_it_is_a_notebook_of_format_4_without_outputs() -> None:
    """https://nbformat.readthedocs.io: what a front end asks of version 4.5."""
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert NOTEBOOK["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)
    assert all(cell["metadata"] == {} and cell["source"] for cell in NOTEBOOK["cells"])
