"""What docs/fleet.md hands to callers works: the client that tries a second cell, and the stack with its endpoints."""

import importlib.util
import json
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import pytest
import yaml
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

from infra.fleet.parts import REPOSITORY_ROOT

EXAMPLES = REPOSITORY_ROOT / "docs" / "examples"


class Cell:
    """A load balancer that answers every plan with one status."""

    def __init__(self, status: int) -> None:
        self.asked: list[dict[str, Any]] = []
        asked = self.asked

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps({"status": status}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                del words

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def cells(request: pytest.FixtureRequest) -> Iterator[list[Cell]]:
    made = [Cell(status) for status in request.param]
    yield made
    for cell in made:
        cell.end()


@pytest.fixture(scope="module")
def client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ask_cells", EXAMPLES / "ask_cells.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("cells", [(200, 200)], indirect=True)
def test_the_first_cell_is_asked_first(client: ModuleType, cells: list[Cell]) -> None:
    assert client.ask([cell.url for cell in cells], "red shoes") == {"status": 200}
    assert [len(cell.asked) for cell in cells] == [1, 0]
    assert cells[0].asked[0]["query"] == "red shoes"


@pytest.mark.parametrize("cells", [(503, 200), (429, 200), (502, 200)], indirect=True)
def test_the_second_cell_is_asked_when_the_first_fails(client: ModuleType, cells: list[Cell]) -> None:
    assert client.ask([cell.url for cell in cells], "red shoes") == {"status": 200}
    assert sum(cell.asked[0]["deadline_ms"] for cell in cells) <= client.DEADLINE_MS


@pytest.mark.parametrize("cells", [(200,)], indirect=True)
def test_a_cell_that_is_not_there_is_gone_round(client: ModuleType, cells: list[Cell]) -> None:
    assert client.ask(["http://127.0.0.1:1", cells[0].url], "red shoes") == {"status": 200}


@pytest.mark.parametrize("cells", [(422, 200)], indirect=True)
def test_a_question_that_is_refused_is_refused_everywhere(client: ModuleType, cells: list[Cell]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.ask([cell.url for cell in cells], "")
    refused.value.close()
    assert refused.value.code == 422
    assert cells[1].asked == []


def test_when_no_cell_answers_the_last_one_s_error_is_told(client: ModuleType) -> None:
    with pytest.raises(OSError, match="refused"):
        client.ask(["http://127.0.0.1:1", "http://127.0.0.1:1"], "red shoes")


@pytest.mark.parametrize("name", ["faults", "pipeline-role"])
def test_what_a_platform_s_people_are_handed_is_sound(name: str) -> None:
    template = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    found = lint(json.dumps(template), config=ManualArgs(regions=["us-east-1"]))
    assert [f"{match.rule.id} {match.message} {match.path}" for match in found] == []


def test_the_caller_s_stack_is_sound() -> None:
    template = yaml.safe_load((EXAMPLES / "caller.yaml").read_text(encoding="utf-8"))
    found = lint(json.dumps(template), config=ManualArgs(regions=["us-east-1"]))
    assert [f"{match.rule.id} {match.message} {match.path}" for match in found] == []
    names = [
        each["Properties"]["Name"]["Fn::Sub"] for each in template["Resources"].values() if "Record" in each["Type"]
    ]
    assert {name.replace("${Domain}", "d") for name in names} == {"cell-1.plan.d", "cell-2.plan.d", "plan.d"}
