"""`make stack`: planner hosts in two cells, Envoy, caches, Prometheus, Alertmanager, PostgreSQL here, until Ctrl-C.

Hosts run the model; with --recorded they take recorded times instead, so that eight of them fit on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path

from rehearsal.stack.folder import (
    ALERTMANAGER,
    BALANCER,
    CELLS,
    COMPOSE_NETWORK,
    PROMETHEUS,
    Folder,
    Shape,
    StackError,
    certify,
    free_network,
    missing,
    write,
)
from rehearsal.stack.processes import StoppedError, running, trusting
from rehearsal.stack.shop_database import PORT, ShopDatabase, why_none

_LOOK_SECONDS = 0.5  # between two looks whether every program still runs
QUESTION = "waterproof hiking boots under $150"


def main() -> int:
    """Run a stack; return 0 after a requested stop, 1 with a line on standard error where it does not start."""
    options = _options()
    if lacking := [] if options.certificate else missing():
        print("a stack needs programs that are not installed:\n  " + "\n  ".join(lacking), file=sys.stderr)
        return 1
    if options.certificate:
        return _certificate(options.certificate)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    started = time.monotonic()
    try:
        folder = make_folder(options.folder, Shape(options.hosts))
        shop = _shop(folder)
        parts = ["Envoy", "caches", "Prometheus", "Alertmanager", *(["PostgreSQL"] if shop else [])]
        print(f"starting {options.hosts * len(CELLS)} hosts, {', '.join(parts)}", file=sys.stderr)
        variables = host_variables(recorded=options.recorded)
        with running(folder, variables, light=options.recorded, shop=shop, stop=stop) as programs:
            answer = first_plan(folder)
            print(f"first plan through Envoy after {time.monotonic() - started:.1f} s, by {answer['source']}:")
            print(json.dumps(answer["plan"]))
            _say(folder, shop)
            while not options.once and not stop.wait(_LOOK_SECONDS):
                if ended := programs.ended():
                    raise StackError(f"{ended} ended: {programs.log_of(ended) or 'it said nothing'}")
    except StackError as error:
        print(f"no stack: {error}", file=sys.stderr)
        return 1
    except StoppedError:
        pass
    print("stopped; nothing of it is left running", file=sys.stderr)
    return 0


def _certificate(place: Path) -> int:
    try:
        certify(place, f"{COMPOSE_NETWORK}{BALANCER}")
    except StackError as error:
        print(f"no certificate: {error}", file=sys.stderr)
        return 1
    print(f"callers trust {place / 'authority.pem'}")
    return 0


def make_folder(path: Path, shape: Shape, *, rules: str = "") -> Folder:
    """Write a fresh folder in a free network; certificates and data of the stack before are gone."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return write(path, shape, free_network(), rules=rules)


def host_variables(*, recorded: bool, replicas: int = 1, times: float = 1.0) -> dict[str, str]:
    """Return the variables of every host."""
    variables = {"PEAKPLAN_REPLICAS": str(replicas), "PEAKPLAN_OVERSUBSCRIBE": "1", "PEAKPLAN_LOG_LEVEL": "warning"}
    return variables | ({"LIGHT_TIMES": str(times)} if recorded else {})


def first_plan(folder: Folder) -> dict[str, object]:
    """Ask for one plan through Envoy, over TLS. Raises StackError."""
    body = json.dumps({"query": QUESTION}).encode()
    request = urllib.request.Request(f"{folder.url}/plan", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10, context=trusting(folder)) as response:
            answer: dict[str, object] = json.loads(response.read())
            return answer
    except OSError as error:
        raise StackError(f"Envoy is up and gives no plan: {error}") from error


def _shop(folder: Folder) -> ShopDatabase | None:
    if lacking := why_none():
        print(f"without the sample shop in PostgreSQL: {lacking}. Each host has its own, in SQLite", file=sys.stderr)
        return None
    return ShopDatabase(folder)


def _say(folder: Folder, shop: ShopDatabase | None) -> None:
    authority = os.path.relpath(folder.path / "certificates" / "authority.pem")
    where = f"{shop.address}:{PORT}, with the sample shop" if shop else "none: each host has a sample shop of its own"
    print(f"""
  plans         curl --cacert {authority} {folder.url}/plan --json '{{"query": "{QUESTION}"}}'
  products      curl --cacert {authority} {folder.url}/answer --json '{{"query": "{QUESTION}"}}'
  the page      {folder.url}
  Prometheus    http://{folder.address(PROMETHEUS)}:9090/alerts
  Alertmanager  http://{folder.address(ALERTMANAGER)}:9093
  PostgreSQL    {where}
  files, logs   {os.path.relpath(folder.path)}
  Ctrl-C stops all of it.""")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make stack", description=__doc__)
    parser.add_argument("--hosts", type=int, default=1, help="of each of the two cells; 4 at most")
    parser.add_argument(
        "--recorded", action="store_true", help="hosts take recorded times instead of running the model"
    )
    parser.add_argument("--certificate", type=Path, help="make only compose's certificates, into this folder")
    parser.add_argument("--once", action="store_true", help="stop after the first plan")
    parser.add_argument("--folder", type=Path, default=Path("runs/stack"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
