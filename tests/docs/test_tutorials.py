"""The tutorials, followed to the letter in a fresh folder, and the notebook, run from top to bottom."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rehearsal.tools import client_types
from service.planner.vocabulary import shipped_vocabulary
from tests.processes import PATIENCE
from tests.server_process import REPOSITORY
from training.data.own_rows import read_own_rows

_BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_SERVES = re.compile(r"(peakplan serve|python -m http\.server)\b")
_STATE = 'export -p > "$STATE"; printf "cd %q\\n" "$PWD" >> "$STATE"'


class Block(NamedTuple):
    """A fenced block: its language, the name of the file that it is, if any, and its lines."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield a document's fenced blocks in order."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(match[1], match[2] or "", match[3])


@dataclass
class Reader:
    """Somebody who follows a tutorial in a folder; `ports` are free ones instead of those that the page names."""

    folder: Path
    ports: Mapping[str, int]
    said: list[str] = field(default_factory=list)
    _servers: ExitStack = field(default_factory=ExitStack)

    def follow(self, page: Path) -> None:
        """Do all that a page says; what it shows in ```text must be what was said last."""
        self._state.write_text(f". {REPOSITORY / '.venv/bin/activate'}\n", encoding="utf-8")
        for block in blocks(page):
            if block.file:
                (self.folder / block.file).write_text(self._moved(block.text), encoding="utf-8")
            elif block.language == "sh" and _SERVES.search(block.text):
                self._servers.enter_context(self._serving(block.text))
            elif block.language == "sh":
                self.said.append(self._typed(block.text))
            elif block.language == "text":
                assert self.said[-1] == self._moved(block.text), f"{page.name} shows something else"

    def close(self) -> None:
        """End what serves."""
        self._servers.close()

    @property
    def _state(self) -> Path:
        return self.folder / ".state"

    def _moved(self, text: str) -> str:
        for port, ours in self.ports.items():
            text = re.sub(rf"(?<=127\.0\.0\.1[: ]){port}\b", str(ours), text)
        return text

    def _command(self, text: str) -> list[str]:
        return ["bash", "-c", f'set -euo pipefail; . "$STATE"\n{self._moved(text)}']

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PEAKPLAN")}
        return {**kept, "STATE": str(self._state), "PORT": str(self.ports["8080"]), "PYTHONUNBUFFERED": "1"}

    def _typed(self, text: str) -> str:
        command = self._command(f"{text}\n{_STATE}")
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def _serving(self, text: str) -> Iterator[None]:
        log = (self.folder / "log").open("a+", encoding="utf-8")
        process = subprocess.Popen(
            self._command(text), cwd=self.folder, env=self._environment(), stderr=log, stdout=log, process_group=0
        )
        url = f"http://127.0.0.1:{self.ports['8000'] if 'http.server' in text else self.ports['8080']}"
        end = time.monotonic() + PATIENCE
        try:
            while not _answers(f"{url}/readyz" if "peakplan" in text else url):
                assert process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")
                assert time.monotonic() < end, f"{text} does not serve"
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
            log.close()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


TUTORIALS = REPOSITORY / "docs/tutorials"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    somebody = Reader(tmp_path, {"8080": free_port(), "8000": free_port()})
    yield somebody
    somebody.close()


@pytest.mark.slow
def test_a_shop_is_searched(reader: Reader) -> None:
    reader.follow(TUTORIALS / "search-a-shop.md")
    assert "Orlo Post daypack red canvas" in reader.said[-1]


@pytest.mark.slow
def test_rows_of_one_s_own_are_made_and_pass_the_check(tmp_path: Path) -> None:
    """What of the third tutorial takes seconds."""
    (rows,) = (block for block in blocks(TUTORIALS / "own-model.md") if block.file == "rows.py")
    done = subprocess.run([sys.executable, "-c", rows.text], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = read_own_rows(tmp_path / "mine.jsonl", shipped_vocabulary())
    assert done.stdout == f"{len(found.train) + len(found.dev)} rows\n"
    assert len(found.dev) >= 20, "enough to tell whether the model got better"
    assert found.repeated == []


@pytest.mark.slow
@pytest.mark.skipif("PEAKPLAN_TUTORIALS" not in os.environ, reason="trains for minutes: peakplan tools tutorials")
@pytest.mark.timeout(4 * 3600)  # a machine with other work takes longer, and nothing hangs
def test_a_model_of_one_s_own(reader: Reader) -> None:
    reader.follow(TUTORIALS / "own-model.md")
    checked, trained = reader.said[2:4]
    assert "time: some " in checked
    before, after = re.findall(r"^\| all of a row \| ([\d.]+)% \| ([\d.]+)% \|$", trained, re.MULTILINE)[0]
    assert float(after) > float(before)
    assert (reader.folder / "models/mine/training.json").is_file()


@pytest.mark.slow
def test_a_widget_in_a_page(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.api.page_visit import CHROMIUM, Visit, running_chromium

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install -y --no-install-recommends chromium")
    if not (client_types.FOLDER / "node_modules").exists():
        pytest.skip("the compiler is not installed: peakplan tools client-types")
    monkeypatch.setenv("PATH", client_types.PATH)
    reader.follow(TUTORIALS / "widget.md")
    with running_chromium() as browser:
        visit = Visit.open(browser, f"http://127.0.0.1:{reader.ports['8000']}")
        box, understood = visit.page.get_by_role("textbox"), visit.page.get_by_role("listitem")
        box.fill("leather boots under 80 dollars, not brown")
        box.press("Enter")
        understood.filter(has_text="up to 80").wait_for()
        said = understood.all_text_contents()
        assert "type: boots" in said
        assert "not brown" in said
        box.fill("what about in black?")
        box.press("Enter")
        understood.filter(has_text="color: black").wait_for()
        assert "type: boots" in understood.all_text_contents()
        assert [each for each in visit.complaints if "favicon" not in each and "404" not in each] == []


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


def test_every_cell_of_the_notebook_does_what_its_text_says(planner_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKPLAN_URL", planner_url)
    names, printed = run_all()
    assert names["plan"].price.max == 80
    assert names["follow_up"].price.max == 80
    assert [isinstance(one, names["PlannerError"]) for one in names["planned"]] == [False, False, False, True]
    found = {row[0] for row in names["found"]}
    assert {"2", "3"} <= found <= {"1", "2", "3"}, "the fourth is dearer"
    assert "up to   80.0 USD" in printed["plan"]
    assert re.match("query - ", printed["error"])


def test_the_notebook_is_of_format_4_without_outputs() -> None:
    """https://nbformat.readthedocs.io: what a front end asks of version 4.5."""
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert NOTEBOOK["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)
    assert all(cell["metadata"] == {} and cell["source"] for cell in NOTEBOOK["cells"])
