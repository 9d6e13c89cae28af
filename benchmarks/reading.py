"""Microseconds of reading a question, of this tree and of an earlier one, in one run.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.reading --before /tmp/before

Each tree answers in a process of its own; they take turns, round after round, and the least thread CPU time of all
rounds counts. "reading" is what the closed phrases of a conversation say, with the language that they are in; "rules"
is the whole plan by rule. The questions are the English ones of benchmarks/cases; each is new to the caches of words,
which a first round fills as other shoppers' questions do.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
_CASES = Path(__file__).with_name("cases")
_ROUNDS = 15


def questions() -> list[tuple[str, list[str]]]:
    """Return the English questions of the cases that other writers wrote, each with its history."""
    rows = (
        json.loads(line)
        for path in sorted(_CASES.glob("writer_*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    return [(row["query"], row.get("history", [])) for row in rows]


def _makers() -> dict[str, Callable[[Any], object]]:
    """Return what reads and what plans a parsed question in the tree that this process imports."""
    from service.planner.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(HERE / "models" / "qp-smollm2-135m")
    try:
        from service.planner.fallback.making.plans import plan_by_rule
        from service.planner.fallback.reading.conversation import Conversation
    except ImportError:  # a tree from before the planner's rooms
        closed, fallback = (import_module(f"service.planner.{name}") for name in ("closed", "fallback"))
        return {"reading": closed.Closed, "rules": lambda asked: fallback.fallback_plan(asked, vocabulary)}

    def read(asked: Any) -> object:
        conversation = Conversation(asked)
        return conversation.is_english, conversation.phrases, conversation.refusals

    return {"reading": read, "rules": lambda asked: plan_by_rule(Conversation(asked), vocabulary)}


def work() -> None:
    """Answer each line of standard input, the name of a maker, with the microseconds a question that it takes."""
    from service.planner.question import Question

    asked = [Question.parse(query, history) for query, history in questions()]
    makers = _makers()
    for line in sys.stdin:
        make = makers[line.strip()]
        start = time.thread_time()
        for one in asked:
            make(one)
        print((time.thread_time() - start) / len(asked) * 1e6, flush=True)


def _worker(tree: Path) -> subprocess.Popen[str]:
    program = f"import sys; sys.path.insert(0, {str(tree)!r}); sys.path.append({str(HERE)!r})\n"
    program += "from benchmarks.reading import work\nwork()" if tree == HERE else _standalone()
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _standalone() -> str:
    """Return a program that runs this file in a tree that has its own, or none."""
    return f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r}, run_name='worker')['work']()"


def _ask(worker: subprocess.Popen[str], what: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(what + "\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of an earlier commit")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    arguments = parser.parse_args()
    workers = {"before": _worker(arguments.before.resolve()), "now": _worker(HERE)}
    for what in ("reading", "rules"):
        least = {name: _ask(worker, what) for name, worker in workers.items()}
        for _ in range(arguments.rounds):
            for name, worker in workers.items():
                least[name] = min(least[name], _ask(worker, what))
        change = least["now"] / least["before"] - 1
        print(f"{what}: {least['before']:.1f} us before, {least['now']:.1f} us now ({change:+.1%})")
    for worker in workers.values():
        worker.communicate()


if __name__ == "__main__":
    main()
