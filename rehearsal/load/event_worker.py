"""One worker of an event's load test, as AWS Lambda runs it: a minute of open-loop load, and a line about it.

Lambda has this file, the client beside it, the questions and, where there is one, the authority that callers trust;
nothing else is installed there, and the network that it runs in need not reach AWS. The line is in the embedded metric
format, of which CloudWatch makes counts. Not run in AWS.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from rehearsal.load.client import LoadGenerator, Sample, Shot
from rehearsal.load.popularity import ZIPF

NAMESPACE = "Peakplan/Load"
LATE_SECONDS = 5.0  # after which a worker that was started too late sends nothing: its minute is over for others
_ANSWER_SECONDS = 3.0
_LATE_MS = 50.0  # after the deadline
_FOLDER = Path(__file__).parent
_QUESTIONS, _AUTHORITY = "questions.json", "authority.pem"
_COUNTS = ("Sent", "Planned", "ByRule", "Refused", "Failed", "Late")


def arrivals(begins: float, ends: float, seconds: float, rng: random.Random) -> list[float]:
    """Draw Poisson arrivals whose rate goes from `begins` to `ends` requests a second."""
    most, at, found = max(begins, ends), 0.0, []
    while most > 0 and (at := at + rng.expovariate(most)) < seconds:
        if rng.random() * most < begins + (ends - begins) * at / seconds:
            found.append(at)
    return found


def shots(event: Mapping[str, Any], questions: Sequence[str]) -> list[Shot]:
    """Return a minute's requests, decided before it begins: another worker's, and another minute's, are others."""
    rng = random.Random(f"{event['worker']} {event['starts_at']}")
    moments = arrivals(event["begins"], event["ends"], event["seconds"], rng)
    weights = list(accumulate((rank + 1) ** -ZIPF for rank in range(len(questions))))
    asked = rng.choices(questions, cum_weights=weights, k=len(moments)) if moments else []
    deadline = int(event["deadline_ms"])
    made = []
    for at, question in zip(moments, asked, strict=True):
        # A limit that nobody has named: no cache knows the question.
        fresh = f" under {rng.randrange(100, 10**7)} dollars" if rng.random() < event["fresh"] else ""
        body = json.dumps({"query": question + fresh, "deadline_ms": deadline}).encode()
        made.append(Shot(at, body, deadline / 1000))
    return made


def counted(samples: Sequence[Sample]) -> dict[str, float]:
    """Return what came of a minute: counts, milliseconds, and how late this worker itself was."""
    found: dict[str, float] = dict.fromkeys(_COUNTS, 0)
    found["Sent"] = len(samples)
    for sample in samples:
        found[_outcome(sample)] += 1
        found["Late"] += sample.latency > sample.deadline + _LATE_MS / 1000
    latencies = sorted(1000 * sample.latency for sample in samples)
    lags = sorted(1000 * (sample.sent - sample.at) for sample in samples)
    for name, values, share in (("P50", latencies, 0.5), ("P99", latencies, 0.99), ("Lag", lags, 0.99)):
        if values:
            found[name] = round(values[int(share * (len(values) - 1))], 1)
    return found


def handler(event: Mapping[str, Any], context: object) -> dict[str, float]:
    """Send a minute's load when it is due; return and print what came of it."""
    del context
    wait = event["starts_at"] - time.time()
    if wait < -LATE_SECONDS:
        print(f"{-wait:.0f} s too late for a minute: nothing is sent")
        return {"Sent": 0}
    made = shots(event, _questions())
    token = _secret() if os.environ.get("METHOD") == "jwt" else ""
    generator = LoadGenerator(os.environ["URL"], timeout=_ANSWER_SECONDS, token=token, trust=_trust())
    time.sleep(max(event["starts_at"] - time.time(), 0))
    found = counted(asyncio.run(generator.fire(made)))
    print(json.dumps(_embedded(found)))
    return found


def _outcome(sample: Sample) -> str:
    if sample.status in (429, 503):
        return "Refused"
    if sample.status != 200:
        return "Failed"
    try:
        return "ByRule" if json.loads(sample.body)["degraded"] else "Planned"
    except (ValueError, KeyError, TypeError):
        return "Failed"


def _embedded(found: Mapping[str, float]) -> dict[str, Any]:
    units = {name: "Count" if name in _COUNTS else "Milliseconds" for name in found}
    metrics = [{"Name": name, "Unit": unit} for name, unit in units.items()]
    described = {"Namespace": NAMESPACE, "Dimensions": [["Fleet"]], "Metrics": metrics}
    head = {"Timestamp": int(1000 * time.time()), "CloudWatchMetrics": [described]}
    return {"_aws": head, "Fleet": os.environ["FLEET"], **found}


@cache
def _questions() -> list[str]:
    found: list[str] = json.loads((_FOLDER / _QUESTIONS).read_text(encoding="utf-8"))
    return found


@cache
def _trust() -> ssl.SSLContext | None:
    """Return what verifies the fleet and, by a certificate with its key, this caller; None without TLS."""
    if not os.environ["URL"].startswith("https:"):
        return None
    authority = _FOLDER / _AUTHORITY
    trust = ssl.create_default_context(cafile=str(authority) if authority.is_file() else None)
    if os.environ.get("METHOD") == "mtls":
        path = Path("/tmp/client.pem")  # the one place that a function may write to
        path.touch(mode=0o600)
        path.write_text(_secret(), encoding="ascii")
        trust.load_cert_chain(path)
    return trust


@cache
def _secret() -> str:
    """Return the caller's token, or its certificate and key: of the secret that IDENTITY names."""
    import boto3  # Lambda's Python brings it

    return str(boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["IDENTITY"])["SecretString"])
