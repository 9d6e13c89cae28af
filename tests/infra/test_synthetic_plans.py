"""The canary's program asks a server for plans, and takes nothing for one that is none; its alarm stops a rollout."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from infra.constructs.ask_plans import NoGoodPlanError, ask, handler, question
from infra.fleet.alarms import cell_alarms, gates
from infra.fleet.network_parts import Authentication
from infra.fleet.synthetic_plans import CALLER, PORT, headers
from service.api.callers import Callers
from service.settings.choices import CallerSource
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import templates

PLAN = {"degraded": False, "plan": {"queries": ["red running shoes"]}}


class Cell:
    """A server that answers POST /plan with `answer`, and keeps what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.answer: tuple[int, Any] = (200, PLAN)
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        cell = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cell.asked.append((self.path, body, dict(self.headers)))
                status, said = cell.answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(said if isinstance(said, bytes) else json.dumps(said).encode())

            def log_message(self, format: str, *values: object) -> None:
                del format, values

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
        subprocess.run([*made, "-subj", "/CN=plan.planner.internal"], check=True, capture_output=True)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    made = Cell(tmp_path_factory.mktemp("cell"))
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


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
        ((200, PLAN | {"degraded": True, "reason": "capacity"}), "a plan by rule in the model's place: capacity"),
        ((200, {"degraded": False, "plan": {"queries": []}}), "searches for nothing"),
    ],
)
def test_what_is_no_good_plan_fails_a_run(cell: Cell, answer: tuple[int, Any], said: str) -> None:
    cell.answer = answer
    with pytest.raises(NoGoodPlanError, match=said):
        ask(cell.address, {}, 300, 0)


def test_a_late_plan_and_a_cell_that_is_gone_fail_a_run(cell: Cell) -> None:
    with pytest.raises(NoGoodPlanError, match="ms, of at most 0"):
        ask(cell.address, {}, 0, 0)
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
    found = {name: stack["Resources"].values() for name, stack in templates("dev").items()}
    (opened,) = [
        each["Properties"]
        for stack in found.values()
        for each in stack
        if each["Type"] == "AWS::EC2::SecurityGroupIngress" and each["Properties"].get("FromPort") == PORT
    ]
    assert "Plans" in json.dumps(opened["SourceSecurityGroupId"])
    groups = [each for each in found["Cell-1"] if each["Type"] == "AWS::EC2::SecurityGroup"]
    assert str(PORT) not in json.dumps([each["Properties"].get("SecurityGroupIngress", []) for each in groups])
    canaries = [each["Properties"] for each in found["Edge"] if each["Type"] == "AWS::Synthetics::Canary"]
    assert [each["Name"] for each in canaries] == ["peakplan-dev-cell-1"]
    assert canaries[0]["Schedule"]["Expression"] == "rate(1 minute)"
