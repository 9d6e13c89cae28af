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
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rehearsal.bench.peers.engines import CTranslate2, LlamaCpp, OnnxRuntime, OpenVino, PeerEngine
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


_RULE = re.compile(r"^(\w+): (.*)$")
_PATTERN = re.compile(r"/((?:\\.|[^/])*)/")


def to_gbnf(lark: str) -> str:
    """Return a plan's grammar (service/planner/grammar.py) in GBNF: the same strings, with root `start`.

    Raises ValueError for a line that is not a rule of the kind that plans have.
    """
    rules = []
    for line in lark.splitlines():
        match = _RULE.match(line)
        if match is None:
            raise ValueError(f"not a rule of a plan's grammar: {line!r}")
        rules.append(f"{match[1]} ::= {_PATTERN.sub(_pattern, match[2])}")
    return "\n".join(rules) + "\n"


def _pattern(match: re.Match[str]) -> str:
    """Return the GBNF of a literal or a counted character class; a `-` goes last in its class, unescaped."""
    parts = []
    for characters, count, literal in re.findall(r"\[((?:\\.|[^\]])*)\]((?:\{[\d,]+\})?)|(.)", match[1]):
        if literal:
            parts.append(f'"{literal}"')
            continue
        dash = "-" if r"\-" in characters else ""
        kept = characters.replace(r"\-", "")
        parts.append(f"[{kept}{dash}]{count}")
    return " ".join(parts)


def decode(engine: LlamaCpp, prompt: list[int], lark: str, max_tokens: int) -> list[int]:
    """Decode greedily under the grammar, with a forward for every token.

    As llama.cpp's own sampling does, the grammar first sees the best token alone, and the vocabulary only where it
    refuses that one. Raises ValueError for a grammar that llama.cpp does not take.
    """
    import llama_cpp

    sampler = llama_cpp.llama_sampler_init_grammar(engine.vocabulary, to_gbnf(lark).encode(), b"start")
    if not sampler:
        raise ValueError("llama.cpp does not take the grammar")
    try:
        tokens: list[int] = []
        unread = prompt
        while len(tokens) < max_tokens:
            chosen = _best_allowed(llama_cpp, sampler, engine.logits(unread))
            if llama_cpp.llama_vocab_is_eog(engine.vocabulary, chosen):
                break
            llama_cpp.llama_sampler_accept(sampler, chosen)
            tokens.append(chosen)
            unread = [chosen]
        return tokens
    finally:
        llama_cpp.llama_sampler_free(sampler)


_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


def _best_allowed(llama_cpp: Any, sampler: Any, logits: Any) -> int:
    best = int(logits.argmax())
    for ids in (np.array([best]), np.arange(len(logits))):
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"], candidates["logit"] = ids, logits[ids]
        pointer = candidates.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        array = llama_cpp.llama_token_data_array(data=pointer, size=len(ids), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        found = int(candidates["logit"].argmax())  # what is refused has -inf now
        if np.isfinite(candidates["logit"][found]):
            return int(candidates["id"][found])
    raise ValueError("the grammar allows no token")


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
