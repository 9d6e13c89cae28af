"""`peakplan bench peers`: other engines for CPUs on the same tuned weights, beside ours and the machine's limit.

Each peer runs in a process of its own, from an environment with the group `peers` of pyproject.toml, and is asked over
a pipe, so that all take turns in one run. docs/figures/peers.json keeps one entry a machine and kernel; a run replaces
its own.
"""

import argparse
import base64
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from peakplan.environment import made
from rehearsal.bench.figure_file import write_machine
from rehearsal.bench.limits import measure_limits
from rehearsal.bench.machine import describe_machine, is_forced, machine_name
from rehearsal.bench.peers.checkpoint import prepare
from rehearsal.bench.peers.comparison import ROWS, VOID_BELOW, Answered, Asked, Comparison, compare
from rehearsal.bench.peers.environment import PEERS, Peer, why_not_installed
from rehearsal.bench.peers.ours import Ours, Reference
from rehearsal.bench.peers.process import PeerError, PeerProcess
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.settings import Settings

FIGURE = Path("docs/figures/peers.json")
OURS = "Peakplan"
AGREEMENT_QUESTIONS = 10  # some hundred positions


class RemotePeer:
    """A peer's engine in a worker process, loaded."""

    def __init__(self, process: PeerProcess, peer: Peer, checkpoint: Path, threads: int, processors: list[int]) -> None:
        """Load the peer. Raises PeerError."""
        self._process = process
        loading = {"do": "load", "peer": peer.name, "checkpoint": str(checkpoint), "threads": threads}
        self.loaded = process.ask({**loading, "processors": processors})
        self.plans: Sequence[str] = self.loaded["plans"]

    def forwards(self, rows: int, times: int) -> list[float]:
        found: list[float] = self._process.ask({"do": "forward", "rows": rows, "times": times})["ms"]
        return found

    def plan(self, how: str, asked: Asked) -> Answered:
        request = {"prompt": asked.prompt, "grammar": asked.grammar, "max_tokens": asked.max_tokens}
        answer = self._process.ask({"do": "plan", "how": how, **request})
        return Answered(answer["ms"], tuple(answer["tokens"]), answer["forwards"])

    def agreement(self, references: Sequence[Reference]) -> dict[str, float]:
        """Compare its logits with ours at each position of some plans. Raises PeerError where it is another model."""
        correlations, same = [], []
        for tokens, mine in references:
            answer = self._process.ask({"do": "logits", "tokens": tokens})
            theirs = np.frombuffer(base64.b64decode(answer["logits"]), np.float32)
            if theirs.size != mine.size:
                raise PeerError(f"void: it has {theirs.size} logits, and ours {mine.size}")
            correlations.append(float(np.corrcoef(mine, theirs)[0, 1]))
            same.append(int(mine.argmax()) == answer["token"])
        found = {
            "positions": len(same),
            "same_best_token": round(sum(same) / len(same), 4),
            "logits_correlation": round(float(np.mean(correlations)), 4),
        }
        if found["same_best_token"] < VOID_BELOW:
            raise PeerError(f"void: its logits are not ours, {found}")
        return found


def measure(
    ours: Ours,
    checkpoint: Path,
    python: Path,
    asked: Sequence[Asked],
    turns: int,
    threads: int,
) -> dict[str, dict[str, Any]]:
    """Measure every peer on `threads` threads, and ours on one, pinned to the same processors."""
    processors = sorted(os.sched_getaffinity(0))[-threads:] if hasattr(os, "sched_getaffinity") else []
    figures: dict[str, dict[str, Any]] = {}
    references = ours.references(asked[:AGREEMENT_QUESTIONS])
    with ExitStack() as stack:
        engines: dict[str, Any] = {OURS: ours}
        for peer in PEERS:
            _say(f"{peer.name}, {threads} thread{'s' * (threads > 1)}: loading")
            try:
                worker = [str(python), "-m", "rehearsal.bench.peers.worker"]
                process = stack.enter_context(PeerProcess(worker, peer.forced_environment(python)))
                remote = RemotePeer(process, peer, checkpoint, threads, processors)
                agreement = remote.agreement(references)
            except PeerError as error:
                figures[peer.name] = {"failed": why_not_installed(python, peer) or str(error)}
                continue
            known = {"package": remote.loaded["package"], "note": remote.loaded["note"], "agreement": agreement}
            figures[peer.name] = {**known, "instructions": peer.instructions(python)}
            engines[peer.name] = remote
        with _Pinned(processors):
            found = compare(engines, asked, turns, progress=_say)
    for name in engines:
        figures.setdefault(name, {}).update(_summary(found, name))
    return figures


def _summary(found: Comparison, name: str) -> dict[str, Any]:
    if name in found.failed:
        return {"failed": found.failed[name]}
    ours = found.plans[OURS, "greedy with fast-forward"]
    plans = {how: found.plan_ms(name, how, ours) for engine, how in found.plans if engine == name}
    return {"forward_ms": found.forward_ms(name), "plans": plans}


class _Pinned:
    """Context manager that pins this process to some processors."""

    def __init__(self, processors: Sequence[int]) -> None:
        self._processors = processors
        self._before: set[int] = set()

    def __enter__(self) -> None:
        if self._processors:
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._processors)

    def __exit__(self, *_: object) -> None:
        if self._before:
            os.sched_setaffinity(0, self._before)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def print_table(figure: dict[str, Any]) -> None:
    """Print forward times, and how well each peer's numbers agree with ours."""
    limit = figure["limits"]["forward_ms"]
    print(f"{'':32}" + "".join(f"{rows:>8}" for rows in limit))
    print(f"{'limit of the machine':32}" + "".join(f"{each:8}" for each in limit.values()))
    for threads, engines in figure["threads"].items():
        for name, one in engines.items():
            label = name if threads == "1" or name == OURS else f"{name}, {threads} threads"
            if "failed" in one:
                print(f"{label:32} {one['failed']}")
                continue
            print(f"{label:32}" + "".join(f"{each:8}" for each in one["forward_ms"].values()), one.get("agreement", ""))
            for how, plan in one["plans"].items():
                print(f"    plans, {how}: {json.dumps(plan)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Settings().model_dir, help="model folder")
    parser.add_argument("--python", type=Path, help="of the peers' environment; made unless given")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--turns", type=int, default=7, help="in which forwards are measured")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the peers; ours has one")
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    python: Path = (arguments.python or made("peers")).absolute()
    settings = Settings(model_dir=arguments.model)
    questions = dev_questions(arguments.questions) if has_dev_data() else own_questions(arguments.questions)
    checkpoint = prepare(arguments.model, settings.cache_dir, _say)
    ours = Ours(arguments.model, settings)
    asked = [ours.ask(question) for question in questions]
    kernel = ours.kernel
    limits = measure_limits(kernel, ours.forward, settings.cache_dir)
    figure = {
        "command": "peakplan bench peers",
        "machine": describe_machine(),
        "kernel": kernel,
        "forced": is_forced(),
        "questions": {"count": len(asked), "from": "dev rows" if has_dev_data() else "our own questions"},
        "limits": limits.figure(ROWS),
        "threads": {
            str(threads): measure(ours, checkpoint, python, asked, arguments.turns, threads)
            for threads in arguments.threads
        },
    }
    write_machine(arguments.output, machine_name(kernel), figure)
    print_table(figure)


if __name__ == "__main__":
    main()
