"""The service as it really runs, with a process, a port, replicas and signals."""

import json
import os
import re
import signal
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import httpx
import pytest

from service.engines.worker.spawn import replicas_of
from service.planner.plan import Plan
from service.telemetry.names import DegradedReason
from tests.api.client import ODD_QUERIES, assert_problem
from tests.processes import eventually, is_alive
from tests.server_process import ServerProcess, serving
from tests.tiny_model import MODEL_ID

PATIENT = {"deadline_ms": 2000}  # so that a busy machine does not turn a model's plan into a fallback


def test_it_is_ready_once_it_can_plan_and_a_plan_comes_from_the_model(server: ServerProcess) -> None:
    ready = server.get("/readyz").json()
    assert (ready["status"], ready["model"]) == ("ready", MODEL_ID)
    assert ready["kernel"].split()[0] in ("avx512vnni", "avxvnni", "avx2", "neon", "torch")
    response = server.post("/plan", {"query": "waterproof hiking boots under $120", **PATIENT})
    answer = response.json()
    assert response.status_code == 200
    assert (answer["source"], answer["model"]) == ("model", {"id": MODEL_ID, "strategy": "medusa"})
    assert answer["usage"]["steps"] > 1
    assert answer["usage"]["plan_tokens"] > 1
    Plan.model_validate(answer["plan"])


def test_trace_decodes_twice_with_the_same_tokens(server: ServerProcess) -> None:
    answer = server.post("/trace", {"query": "waterproof red running shoes for women size 10"}).json()
    medusa, greedy = answer["medusa"], answer["greedy"]
    assert medusa["plan"] == greedy["plan"]
    assert [t for s in medusa["steps"] for t in s["emitted"]] == [t for s in greedy["steps"] for t in s["emitted"]]
    assert len(medusa["steps"]) == medusa["usage"]["steps"] <= greedy["usage"]["steps"] == len(greedy["steps"])
    assert any(node["status"] == "rejected" for step in medusa["steps"] for node in step["nodes"])
    assert medusa["tokens_per_step"] >= greedy["tokens_per_step"]


@pytest.mark.parametrize("query", ODD_QUERIES)
def test_odd_words_get_a_valid_plan(server: ServerProcess, query: str) -> None:
    response = server.post("/plan", {"query": query, **PATIENT})
    assert response.status_code == 200
    Plan.model_validate(response.json()["plan"])


def test_a_prompt_too_long_for_the_model_is_planned_by_the_reader_and_cannot_be_traced(server: ServerProcess) -> None:
    body = {"query": "👟" * 512}
    assert server.post("/plan", body).json()["source"] == "fallback"
    assert "tokens" in assert_problem(server.post("/trace", body), 422)["detail"]


def test_a_large_body_gets_its_answer_before_the_connection_ends(server: ServerProcess) -> None:
    for content in (b"x" * 1_000_000, iter([b"x" * 1000] * 1000)):
        headers = {"content-type": "application/json"}
        assert_problem(httpx.post(f"{server.url}/plan", content=content, headers=headers, timeout=60), 413)


def test_many_at_once_are_all_answered(server: ServerProcess) -> None:
    def plan(number: int) -> httpx.Response:
        return server.post("/plan", {"query": f"red shoes size {number} under ${number}", "deadline_ms": 300})

    with ThreadPoolExecutor(16) as threads:
        answers = [response.json() for response in threads.map(plan, range(1, 65))]
    assert {answer["source"] for answer in answers} <= {"model", "fallback"}
    assert len({answer["request_id"] for answer in answers}) == 64


def test_the_model_runs_in_a_child_and_the_server_never_loads_torch(server: ServerProcess) -> None:
    (replica,) = replicas_of(server.process.pid)
    assert "libtorch" in Path(f"/proc/{replica}/maps").read_text(encoding="utf-8")
    assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")


def test_a_killed_replica_comes_back_and_plans_go_on_meanwhile(server: ServerProcess) -> None:
    (replica,) = replicas_of(server.process.pid)
    os.kill(replica, signal.SIGKILL)
    eventually(lambda: server.get("/readyz").status_code == 503, "the loss of the replica went unnoticed")
    meanwhile = server.post("/plan", {"query": "where is my package"})
    assert meanwhile.status_code == 200
    assert (meanwhile.json()["source"], meanwhile.json()["reason"]) in (("fallback", "engine"), ("model", None))
    eventually(lambda: server.get("/readyz").status_code == 200, "the replica did not come back")
    assert server.post("/plan", {"query": "red shoes", **PATIENT}).json()["source"] == "model"
    assert replicas_of(server.process.pid) != [replica]


def test_metrics_count_plans_without_a_model_under_the_reason_that_their_answers_give(tiny_model_dir: Path) -> None:
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1) as server:
        (replica,) = replicas_of(server.process.pid)
        bodies = [{"query": "👟" * 512, **PATIENT}, {"query": "red shoes", "deadline_ms": 50}]
        os.kill(replica, signal.SIGSTOP)
        answers = [server.post("/plan", body).json() for body in bodies]
        os.kill(replica, signal.SIGCONT)
        answers.append(server.post("/plan", bodies[0]).json())
        pattern = r'^peakplan_fallbacks_total\{reason="(\w+)"\} ([\d.]+)$'
        counted = {name: float(count) for name, count in re.findall(pattern, server.get("/metrics").text, re.MULTILINE)}
    given = Counter(answer["reason"] for answer in answers)
    assert {"deadline", "too_long"} <= set(given)
    assert counted == {reason: given[reason] for reason in get_args(DegradedReason)}


def test_logs_are_json_lines_without_the_shoppers_words(server: ServerProcess) -> None:
    server.post("/plan", {"query": "xylophone zebra", "history": ["quetzal"], **PATIENT})
    server.get("/xylophone?zebra")
    server.post("/plan", {"query": "xylophone", "zebra": 1})
    eventually(lambda: sum(e["event"] == "POST /plan" for e in server.events()) >= 2, "the requests were not logged")
    line = next(event for event in server.events() if event["event"] == "POST /plan" and event["status"] == 200)
    assert {"request_id", "source", "intent", "milliseconds", "queue_ms", "model_ms", "steps"} <= set(line)
    assert not any(word in text for text in server.lines for word in ("xylophone", "zebra", "quetzal"))


def _refuses_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False


def test_sigterm_lets_requests_finish_then_ends_everything(tiny_model_dir: Path) -> None:
    patience = {"PEAKPLAN_BODY_TIMEOUT_SECONDS": 60, "PEAKPLAN_SHUTDOWN_SECONDS": 60}
    body = json.dumps({"query": "red shoes", **PATIENT}).encode()
    head = (
        "POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1, **patience) as server:
        (replica,) = replicas_of(server.process.pid)
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(head.encode())
            assert client.recv(1024).startswith(b"HTTP/1.1 100")  # the handler is waiting for the body
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: _refuses_connections(port), "it still listens")
            client.sendall(body)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"plan":' in answer
        assert server.wait() == 0
        assert not is_alive(replica)
        assert server.events()[-1]["event"] == "stopped"


def test_ctrl_c_ends_it_without_a_traceback(tiny_model_dir: Path) -> None:
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1) as server:
        assert server.stop(signal.SIGINT) == 0
        assert "Traceback" not in "".join(server.lines)


def test_replicas_die_with_a_killed_server(tiny_model_dir: Path) -> None:
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1) as server:
        replicas = replicas_of(server.process.pid)
        assert len(replicas) == 1
        server.process.kill()
        eventually(lambda: not any(map(is_alive, replicas)), "a replica outlived its server")


def _refusal(**environment: object) -> str:
    server = ServerProcess(**environment)
    try:
        assert server.wait() == 1
    finally:
        server.process.kill()
    said = server.events()[-1]  # every line is JSON, however early the process ends
    assert (said["event"], said["program"]) == ("cannot start", "peakplan")
    return str(said["reason"])


def test_a_taken_port_is_said_in_one_line(tiny_model_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in _refusal(PORT=port, PEAKPLAN_MODEL_DIR=tiny_model_dir)


def test_a_missing_model_is_said_in_one_line(tmp_path: Path) -> None:
    line = _refusal(PEAKPLAN_MODEL_DIR=tmp_path / "nowhere", PEAKPLAN_REPLICAS=1)
    assert "nowhere: No such file" in line


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PORT": "70000"}, "PORT"),
        ({"PORT": "tcp://10.0.0.1:80"}, "PORT"),
        ({"HOST": "http://here"}, "must be a host name"),
        ({"PEAKPLAN_DTYPE": "int4"}, "PEAKPLAN_DTYPE=int4"),
        ({"PEAKPLAN_REPLICAS": "200"}, "PEAKPLAN_OVERSUBSCRIBE=1"),
        ({"PEAKPLAN_API_KEYS_FILE": "/nowhere"}, "PEAKPLAN_API_KEYS_FILE=/nowhere: No such file"),
        ({"PEAKPLAN_CACHE_WAIT_MS": "soon"}, "PEAKPLAN_CACHE_WAIT_MS=soon"),
    ],
)
def test_settings_that_cannot_be_are_said_in_one_line(environment: dict[str, str], words: str) -> None:
    assert words in _refusal(**environment)


def test_an_unknown_variable_is_warned_of_with_the_nearest_name(tmp_path: Path) -> None:
    server = ServerProcess(PEAKPLAN_MODEL_DIR=tmp_path / "nowhere", PEAKPLAN_REPLICA=1)
    assert server.wait() == 1
    said = [event["reason"] for event in map(json.loads, server.lines[:-1]) if event["event"] == "setting"]
    assert said == ["PEAKPLAN_REPLICA is no setting: did you mean PEAKPLAN_REPLICAS?"]
