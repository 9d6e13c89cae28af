"""One peer in a process of its own: `python -m rehearsal.bench.peers.worker`, in the peers' environment.

It reads a JSON object a line and answers one a line; an error is an answer too, {"error": why}.

    {"do": "load", "peer": NAME, "checkpoint": FOLDER, "threads": N, "processors": [..]}
                                                        -> {"package": .., "note": .., "plans": [how, ..]}
    {"do": "forward", "rows": N, "times": K}            -> {"ms": [..]}     after 24 cached positions, fastest first
    {"do": "logits", "tokens": [..]}                    -> {"logits": base64 of float32, "token": the highest}
    {"do": "plan", "how": .., "prompt": [..], "grammar": .., "max_tokens": N}
                                                        -> {"ms": .., "tokens": [..], "forwards": N}

How a plan is decoded, always greedily: "our grammar" is llguidance with fast-forward, as our own baseline; "GBNF" is
llama.cpp's grammar by its own sampler; "no grammar" runs to the end token. What an engine prints goes to stderr.
"""

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rehearsal.bench.peers.ctranslate2_engine import CTranslate2
from rehearsal.bench.peers.engines import LlamaCpp, OnnxRuntime, OpenVino, PeerEngine
from service.decoding.constraint import Constraint, GrammarCompiler

PREFIX = 24  # cached positions while a plan is written
PEERS: dict[str, Callable[[Path, int], Any]] = {
    "llama.cpp Q8_0": lambda folder, threads: LlamaCpp(folder, threads, file="q8_0.gguf"),
    "llama.cpp Q4_0": lambda folder, threads: LlamaCpp(folder, threads, file="q4_0.gguf"),
    "ONNX Runtime int8, blocks": lambda folder, threads: OnnxRuntime(folder, threads, scheme="blocks"),
    "ONNX Runtime int8, dynamic": lambda folder, threads: OnnxRuntime(folder, threads, scheme="dynamic"),
    "OpenVINO int8": OpenVino,
    "CTranslate2 int8": CTranslate2,
}


class Worker:
    """Answers requests about one loaded peer."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._compiler: GrammarCompiler | None = None
        self._end_token = -1

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; an exception's text where it fails."""
        try:
            found: dict[str, Any] = getattr(self, f"_{request.pop('do')}")(**request)
            return found
        except Exception as error:  # whatever a foreign package raises is the reason to be listed
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}

    def _load(self, peer: str, checkpoint: str, threads: int, processors: list[int]) -> dict[str, Any]:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, processors)
        folder = Path(checkpoint)
        engine = PEERS[peer](folder, threads)
        self._engine = engine
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._end_token = config["eos_token_id"]
        self._compiler = GrammarCompiler((folder / "tokenizer.json").read_text(encoding="utf-8"), self._end_token)
        return {"package": engine.name, "note": engine.note, "plans": self._plans()}

    def _plans(self) -> list[str]:
        if hasattr(self._engine, "generate"):
            return ["no grammar"]
        return ["our grammar", "GBNF"] if isinstance(self._engine, LlamaCpp) else ["our grammar"]

    def _forward(self, rows: int, times: int) -> dict[str, Any]:
        engine: PeerEngine = self._engine
        taken = []
        for _ in range(times):
            engine.reset()
            engine.forward(list(range(PREFIX)))
            started = time.perf_counter()
            engine.forward(list(range(rows)))
            taken.append((time.perf_counter() - started) * 1000)
        return {"ms": sorted(taken)}

    def _logits(self, tokens: list[int]) -> dict[str, Any]:
        self._engine.reset()
        logits = np.ascontiguousarray(self._engine.logits(tokens), np.float32)
        return {"logits": base64.b64encode(logits.tobytes()).decode("ascii"), "token": int(logits.argmax())}

    def _plan(self, how: str, prompt: list[int], grammar: str, max_tokens: int) -> dict[str, Any]:
        started = time.perf_counter()
        self._engine.reset()
        if how == "GBNF":
            from rehearsal.bench.peers.gbnf import decode

            tokens = decode(self._engine, prompt, grammar, max_tokens)
            forwards = len(tokens) + 1
        elif how == "no grammar":
            tokens = [token for token in self._engine.generate(prompt, max_tokens) if token != self._end_token]
            forwards = len(tokens) + 1
        else:
            assert self._compiler is not None
            tokens, forwards = greedy(self._engine, prompt, self._compiler.compile(grammar), max_tokens)
        return {"ms": (time.perf_counter() - started) * 1000, "tokens": tokens, "forwards": forwards}


def greedy(engine: PeerEngine, prompt: list[int], constraint: Constraint, max_tokens: int) -> tuple[list[int], int]:
    """Return the plan's tokens and the number of forwards; forced tokens are read with the next decision."""
    unread, tokens, forwards = list(prompt), list[int](), 0
    while True:
        while (forced := constraint.forced()) and len(tokens) < max_tokens:
            constraint.accept(forced)
            unread += forced
            tokens += forced
        if constraint.finished() or len(tokens) >= max_tokens:
            return tokens, forwards
        logits = engine.logits(unread)
        forwards += 1
        legal = constraint.legal()
        chosen = int(legal[logits[legal].argmax()])
        constraint.accept([chosen])
        unread = [chosen]
        tokens.append(chosen)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer line after line until the benchmark closes the pipe."""
    worker = Worker()
    for line in requests:
        answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        answers.flush()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines print
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
