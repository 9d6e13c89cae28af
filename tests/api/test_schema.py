"""Requests that follow the OpenAPI document, and many that nearly do: never a 500."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.api.outcome_log import OUTCOMES, PLANS
from tests.api.client import talking_to
from tests.faults.under_load import fake_server

pytestmark = pytest.mark.slow
EXAMPLES = 40  # for each operation; `make siege` tries others, in minutes


@pytest.mark.parametrize(
    "chosen",
    [
        ["--exclude-path", "/plans", "--max-examples", str(EXAMPLES)],
        # A batch of any objects takes schemathesis seconds to think of: what is at random is in the test below.
        ["--include-path", "/plans", "--phases", "examples,coverage"],
    ],
    ids=["questions", "batches"],
)
def test_schemathesis_finds_nothing(tmp_path: Path, chosen: list[str]) -> None:
    """Run schemathesis by its command, because its pytest plugin uses pytest's private attributes."""
    settings = {"PEAKPLAN_MAX_BODY_BYTES": 1024 * 1024, "PEAKPLAN_CORS_ORIGINS": "*"}
    kept = {"PEAKPLAN_OUTCOMES_DIR": tmp_path / "outcomes", "PEAKPLAN_OUTCOMES_TEXT": 1}
    with fake_server(FAKE_SECONDS=0, FAKE_ANSWER="fixed", **settings, **kept) as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json",
            *chosen, "--checks", "all", "--seed", "1", "--request-timeout", "60",
            "--generation-database", "none", "--no-color",
            "--suppress-health-check", "too_slow",  # a busy machine thinks of requests slowly; all are sent
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    kept_in = {PLANS: "plan"} if "--include-path" in chosen else {PLANS: "plan", OUTCOMES: "outcome"}
    for name, record in kept_in.items():
        lines = (tmp_path / "outcomes" / f"{name}.jsonl").read_text(encoding="utf-8").strip().split("\n")
        assert {json.loads(line)["record"] for line in lines} == {record}


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    plain = [None, True, False, 0, -1, 1.5, 1e308, 2**70, "", "shoes", "\x00", "👟" * 3, "a" * 600, "\u202e", "1e5"]
    if depth > 3 or rng.random() < 0.6:
        return rng.choice(plain)
    if rng.random() < 0.5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["query", "history", "x", ""]): any_value(rng, depth + 1) for _ in range(rng.randrange(4))}


@pytest.mark.anyio
async def test_batches_of_random_values() -> None:
    rng = random.Random(2)
    seen: set[int] = set()
    async with talking_to() as client:
        for _ in range(500):
            requests = [any_value(rng) if rng.random() < 0.2 else {"query": any_value(rng)} for _ in range(3)]
            response = await client.post("/plans", json={"requests": rng.choice([requests, requests, any_value(rng)])})
            seen.add(response.status_code)
            assert response.status_code in (200, 422), requests
            for each in response.json().get("answers", []):
                assert each.keys() in ({"answer"}, {"problem"})
                assert "answer" in each or each["problem"]["status"] == 422
    assert seen == {200, 422}
