"""`python -m rehearsal.bench.value_speed`: the time and memory that `peakplan value` takes for ten million events.

The files are made first, seeded, as large as the service's own (3.7 GB in a temporary folder). Writes
docs/figures/value_speed.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from rehearsal.bench.machine import describe_machine

FIGURE = Path("docs/figures/value_speed.json")
EVENTS_A_PLAN = 10
_PLANS = """
COPY (SELECT 'plan' AS record, md5(i::VARCHAR) AS request_id, 'shop' AS caller, 1.8e9 + i / 100.0 AS time,
        'model' AS source, 'ami-' || (i % 2) AS release, 'autumn' AS experiment,
        CASE WHEN (i // 2) % 2 = 0 THEN 'control' ELSE 'rules' END AS arm, md5('s' || (i // 2))[:24] AS client_id
      FROM range({plans}) t(i)) TO '{folder}/plans.jsonl' (FORMAT json)
"""
_EVENTS = """
COPY (SELECT 'event' AS record, md5(i || '-' || k) AS event_id, 'shop' AS caller, 1.8e9 + i / 100.0 + k AS time,
        CASE WHEN k = 0 THEN 'first_shown' WHEN k = 8 AND random() < 0.3 THEN 'click'
          WHEN k = 9 AND random() < 0.05 THEN 'purchase' ELSE 'impression' END AS action_name,
        md5(i::VARCHAR) AS query_id, md5('s' || (i // 2))[:24] AS client_id,
        {{'object': {{'object_id': 'B' || k}}, 'position': {{'ordinal': k}},
          'milliseconds': CASE WHEN k = 0 THEN 200 + 100 * random() END, 'results': CASE WHEN k = 0 THEN 24 END,
          'value': CASE WHEN k = 9 THEN 59.9 END, 'currency': CASE WHEN k = 9 THEN 'EUR' END}} AS event_attributes
      FROM range({plans}) t(i), range({each}) u(k)) TO '{folder}/events.jsonl' (FORMAT json)
"""


def write_files(folder: Path, events: int) -> None:
    """Write plans and so many events as the service does, seeded."""
    with duckdb.connect() as database:
        database.execute("SET threads = 2; SELECT setseed(0.35)")
        for text in (_PLANS, _EVENTS):
            database.execute(text.format(plans=events // EVENTS_A_PLAN, each=EVENTS_A_PLAN, folder=folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), given.events)
        files = sorted(Path(folder).iterdir())
        gigabytes = sum(file.stat().st_size for file in files) / 1e9
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "peakplan.value", *map(str, files)], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "events": given.events, "gigabytes": round(gigabytes, 2), "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1), "memory_mb": used.ru_maxrss // 1024,
        "machine": describe_machine(), "load_before": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    assert done.returncode == 0
    FIGURE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
