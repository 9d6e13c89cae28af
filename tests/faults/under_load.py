"""Load on a server of fake replicas while a test injects faults, and the properties of every answer."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence

import uvloop

from rehearsal.client import LoadGenerator, Sample, Shot
from rehearsal.load.arrivals import poisson
from rehearsal.load.result import shown
from tests.processes import eventually
from tests.server_process import ServerProcess, serving

REPLICAS = 2
GENERATION_SECONDS = 0.03
RATE = REPLICAS / GENERATION_SECONDS / 2  # half the capacity
TIMEOUT = 30.0  # anything longer is a hang, even on a machine that is busy with something else
MODULE = "tests.fake_server"


@contextlib.contextmanager
def fake_server(**environment: object) -> Iterator[ServerProcess]:
    """Run a server over fake replicas of known speed."""
    chosen = {"PEAKPLAN_REPLICAS": REPLICAS, "PEAKPLAN_OVERSUBSCRIBE": 1, "FAKE_SECONDS": GENERATION_SECONDS}
    with serving(MODULE, **chosen | environment) as server:
        yield server


class Load:
    """Distinct questions, sent from a thread; each answer shows its question."""

    def __init__(self, url: str, seconds: float, rate: float = RATE) -> None:
        self.samples: list[Sample] = []
        self._queries = [f"word{number} shoes" for number, _ in enumerate(poisson(rate, seconds))]
        bodies = [json.dumps({"query": query}).encode() for query in self._queries]
        shots = [Shot(at, body) for at, body in zip(poisson(rate, seconds), bodies, strict=True)]
        self._thread = threading.Thread(target=self._run, args=(url, shots))

    def _run(self, url: str, shots: Sequence[Shot]) -> None:
        self.samples = uvloop.run(LoadGenerator(url, timeout=TIMEOUT).fire(shots))

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def assert_nothing_was_lost(self) -> None:
        """Check that every request has a plan, and that every plan names words of its own question."""
        assert self.samples
        failures = {(sample.status, sample.error) for sample in self.samples if sample.status != 200}
        assert failures == set()
        for sample, query in zip(self.samples, self._queries, strict=True):
            plan = json.loads(sample.body)["plan"]
            words = {word for values in plan["facets"].values() for value in values for word in value.split()}
            assert words <= set(query.split()), (query, plan)
            if shown(sample).source == "model":
                assert plan["facets"] == {"type": [query.split()[0]]}

    def sources(self) -> set[str]:
        return {shown(sample).source for sample in self.samples}


def metric(server: ServerProcess, name: str) -> float:
    """Return a sample of /metrics by its full name."""
    lines = server.get("/metrics").text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def assert_full_capacity_again(server: ServerProcess) -> None:
    eventually(lambda: metric(server, "peakplan_replicas_in_service") == REPLICAS, "a replica stayed away")
    answer = server.post("/plan", {"query": "afterwards shoes", "deadline_ms": 2000}).json()
    assert answer["source"] == "model"
