"""The clients of cells: the client and the stack that docs/fleet.md gives to callers, and the canary."""

import importlib.util
import json
import ssl
import subprocess
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from starlette.datastructures import Headers

from infra.constructs.ask_plans import NoGoodPlanError, ask, handler, question
from infra.fleet.alarms import cell_alarms, gates
from infra.fleet.network_parts import Authentication
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.synthetic_plans import CALLER, PORT, headers
from service.api.api_keys import Callers
from service.settings.choices import CallerSource
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import lint_findings, only, resources, templates

EXAMPLES = REPOSITORY_ROOT / "docs" / "examples"


class Cell:
    """A server that answers POST /plan with `answer`, over TLS if given a folder, and keeps what it is asked."""

    def __init__(self, folder: Path | None = None) -> None:
        self.answer: tuple[int, Any] = (200, {"status": 200})
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        cell = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cell.asked.append((self.path, asked, dict(self.headers)))
                status, said = cell.answer
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                del words

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if folder is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
            made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
            subprocess.run([*made, "-subj", "/CN=plan.planner.internal"], check=True, capture_output=True)
            context.load_cert_chain(certificate, key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def cells() -> Iterator[list[Cell]]:
    made = [Cell(), Cell()]
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


NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("first", "asked"), [(200, [1, 0]), (503, [1, 1]), (429, [1, 1]), (502, [1, 1]), (None, [0, 1])]
)
def test_the_first_cell_is_asked_first_and_the_second_where_it_fails_or_is_gone(
    client: ModuleType, cells: list[Cell], first: int | None, asked: list[int]
) -> None:
    cells[0].answer = (first or 200, {"status": first})
    urls = [cells[0].url if first else NOWHERE, cells[1].url]
    assert client.ask(urls, "red shoes") == {"status": 200}
    assert [len(cell.asked) for cell in cells] == asked
    bodies = [body for cell in cells for _, body, _ in cell.asked]
    assert {body["query"] for body in bodies} == {"red shoes"}
    assert sum(body["deadline_ms"] for body in bodies) <= client.DEADLINE_MS


def test_a_question_that_is_refused_is_refused_everywhere(client: ModuleType, cells: list[Cell]) -> None:
    cells[0].answer = (422, {})
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.ask([cell.url for cell in cells], "")
    refused.value.close()
    assert (refused.value.code, cells[1].asked) == (422, [])
    with pytest.raises(OSError, match="refused"):  # where no cell answers, the last one's error is told
        client.ask([NOWHERE, NOWHERE], "red shoes")


@pytest.mark.parametrize("name", ["caller", "faults", "pipeline-role"])
def test_what_a_platform_s_people_are_handed_is_sound(name: str) -> None:
    template = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    assert lint_findings(template) == []
    if name == "caller":
        records = [each["Properties"] for each in template["Resources"].values() if "Record" in each["Type"]]
        names = {record["Name"]["Fn::Sub"].replace("${Domain}", "d") for record in records}
        assert names == {"cell-1.plan.d", "cell-2.plan.d", "plan.d"}


PLAN = {"degraded": False, "plan": {"queries": ["red running shoes"]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    made = Cell(folder=tmp_path_factory.mktemp("cell"))
    yield made
    made.end()


@pytest.fixture
def cell(server: Cell) -> Cell:
    server.answer, server.asked = (200, PLAN), []
    return server


def test_a_run_asks_what_the_cell_has_not_seen(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    told = headers(Authentication(method="mtls", trust_bundle="s3://trust-{account}/a.pem"))
    environment = {"ADDRESS": cell.address, "NAME": "plan.planner.internal", "DEADLINE_MS": "300"}
    for name, value in (environment | {"HEADERS": json.dumps(told)}).items():
        monkeypatch.setenv(name, value)
    assert handler({}, None) == "a plan, whole and in time"
    ((path, body, seen),) = cell.asked
    assert (path, body["deadline_ms"], seen["Host"]) == ("/plan", 300, "plan.planner.internal")
    assert seen["X-Amzn-Mtls-Clientcert-Subject"] == f"CN={CALLER}"
    assert len({question(60 * minute) for minute in range(24 * 60)}) == 24 * 60, "a day without a repetition"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, {"title": "full"}), "status 503"),
        ((200, b"<html>"), "no plan"),
        ((200, {"plan": None, "degraded": False}), "no plan"),
        ((200, PLAN | {"degraded": True, "reason": "capacity"}), "a plan by the reader in the model's place: capacity"),
        ((200, {"degraded": False, "plan": {"queries": []}}), "searches for nothing"),
        (None, "ms, of at most 0"),  # a plan that is late
    ],
)
def test_what_is_no_good_plan_fails_a_run(cell: Cell, answer: tuple[int, Any] | None, said: str) -> None:
    cell.answer = answer or cell.answer
    with pytest.raises(NoGoodPlanError, match=said):
        ask(cell.address, {}, 300 if answer else 0, 0)
    with pytest.raises(OSError, match="refused"):
        ask("127.0.0.1:1", {}, 300, 0)


@pytest.mark.parametrize(
    ("source", "authentication"),
    [
        ("certificate", Authentication(method="mtls", trust_bundle="s3://trust-{account}/a.pem")),
        ("token", Authentication(method="jwt", issuer="https://i", jwks="https://i/k", caller_claim="azp")),
    ],
)
def test_hosts_know_the_canary_by_the_name_that_it_gives(source: CallerSource, authentication: Authentication) -> None:
    callers = Callers(source, authentication.caller_claim, {}, ())
    assert callers.caller(Headers(headers(authentication))).name == CALLER


def test_the_canary_stops_a_rollout_and_is_off_by_one_line() -> None:
    assert "peakplan-dev-cell-1-synthetic-plans" in gates("dev", "cell-1")
    off = dev_fleet({"synthetic_plans": {"enabled": False}})
    assert "synthetic-plans" in {alarm.key for alarm in cell_alarms(dev_fleet())}
    assert "synthetic-plans" not in {alarm.key for alarm in cell_alarms(off)}


def test_nobody_but_the_canary_reaches_its_port() -> None:
    found = templates("dev")
    ingress = [each for stack in found.values() for each in resources(stack, "AWS::EC2::SecurityGroupIngress").values()]
    (opened,) = [each["Properties"] for each in ingress if each["Properties"].get("FromPort") == PORT]
    assert "Plans" in json.dumps(opened["SourceSecurityGroupId"])
    groups = resources(found["Cell-1"], "AWS::EC2::SecurityGroup").values()
    assert str(PORT) not in json.dumps([each["Properties"].get("SecurityGroupIngress", []) for each in groups])
    canary = only(found["Edge"], "AWS::Synthetics::Canary")
    assert (canary["Name"], canary["Schedule"]["Expression"]) == ("peakplan-dev-cell-1", "rate(1 minute)")
