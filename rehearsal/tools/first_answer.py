"""README's first answer, as the real server gives it with the shipped model: into docs/figures/first_answer.json.

`--check` fails where the weights have changed since, or where today's planner makes another plan of the same text. It
takes no model: the text that the model wrote is kept beside its answer, and `make test-all` asks the model itself.
"""

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx

from rehearsal.bench.machine import write_figure
from rehearsal.server import serving
from service.planner.completion import plan_from_text
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings

FIGURE = Path("docs/figures/first_answer.json")
QUERY = "quiet blender, not ninja, under $100, cheapest first"
_ASKED = 200  # times: README shows the fastest answer, which neighbours on the machine disturbed least
_COLUMNS = 120


def weights_digest() -> str:
    """Return the SHA-256 of the shipped model's seal, which holds the digests of its files."""
    return hashlib.sha256((Settings().model_dir / "seal.json").read_bytes()).hexdigest()


def measure() -> dict[str, Any]:
    """Ask a real server; return the fastest of its answers, the text that the model wrote, and which weights it had."""
    with serving({"PEAKPLAN_CACHE_ENTRIES": 0}) as server:
        answers = [_ask(f"{server.url}/plan") for _ in range(_ASKED)]
        trace = _ask(f"{server.url}/trace")
    text = "".join(token for step in trace["medusa"]["steps"] for token in step["emitted"])
    planned = [answer for answer in answers if answer["source"] == "model"]
    answer = min(planned, key=lambda answer: float(answer["timing_ms"]["total"]))
    return {"query": QUERY, "weights": weights_digest(), "text": text, "answer": answer}


def _ask(url: str) -> dict[str, Any]:
    response = httpx.post(url, json={"query": QUERY}, timeout=60)
    answer: dict[str, Any] = response.raise_for_status().json()
    return answer


def what_is_stale(figure: dict[str, Any]) -> str | None:
    """Return why README's first answer is none of today's, or None."""
    if figure["query"] != QUERY:
        return "it answers another question"
    if figure["weights"] != weights_digest():
        return "the model has changed since"
    plan = plan_from_text(figure["text"], Question.parse(QUERY), shipped_vocabulary())
    if plan.model_dump(mode="json") != figure["answer"]["plan"]:
        return "the planner makes another plan of what the model wrote"
    return None


def render(figure: dict[str, Any]) -> str:
    """Return question and answer as a session in a terminal, and what the answer cost."""
    usage = figure["answer"]["usage"]
    return "\n".join(
        [
            "```",
            "$ curl -s http://127.0.0.1:8080/plan -H 'content-type: application/json' \\",
            f"    -d '{json.dumps({'query': figure['query']})}'",
            *broken_lines(json.dumps(figure["answer"], separators=(",", ":"))),
            "```",
            f"{usage['plan_tokens']} tokens in {usage['steps']} forward passes (line breaks added).",
        ]
    )


def broken_lines(compact: str) -> list[str]:
    """Break compact JSON after commas that stand before a name."""
    lines = [""]
    for piece in re.split(r'(?<=,)(?=")', compact):
        if len(lines[-1]) + len(piece) > _COLUMNS:
            lines.append(" ")
        lines[-1] += piece
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the figure is stale")
    if not parser.parse_args().check:
        write_figure(FIGURE, measure())
    elif (reason := what_is_stale(json.loads(FIGURE.read_text(encoding="utf-8")))) is not None:
        sys.exit(f"README's first answer is stale: {reason}. Run `peakplan tools first-answer`.")


if __name__ == "__main__":
    main()
