"""`peakplan bench peers`: other engines for CPUs on the same tuned weights, beside ours and the machine's limit.

Each peer runs in a process of its own, from an environment with the group `peers` of pyproject.toml, and is asked over
a pipe, so that all take turns in one run: forwards by rows, and whole plans. Ours is measured alike, in this process on
one thread. One that fails is kept with its reason. docs/figures/peers.json keeps one entry a machine and kernel; a run
replaces its own.
"""

import argparse
import base64
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from peakplan.environment import made
from rehearsal.bench.machine import describe_machine, is_forced, kernel_in_use, machine_name, quantile, write_machine
from rehearsal.bench.peers.checkpoint import prepare
from rehearsal.bench.peers.environment import PEERS, Peer, why_not_installed
from rehearsal.bench.peers.limits import measure_limits
from rehearsal.bench.peers.worker import PREFIX
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.protocol import GenerationRequest
from service.engines.torch_engine import TorchModel, build_forward, kept_dtype
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Strategy
from service.weights.model_folder import load_model

ROWS = (1, 2, 4, 8, 12, 16)
TIMES = 3  # forwards in a row, of which the fastest counts: the others ran over what another program was doing
# Share of positions with our best token: Q4_0 has 0.92, and 0.45 a file whose rotary positions are laid out wrongly,
# which the correlation of logits right after a prompt (0.89) does not tell from coarse rounding.
VOID_BELOW = 0.8


SECONDS = 300.0  # for the longest answer: a model's first conversion


class PeerError(RuntimeError):
    """Raised when a peer gave no answer; the message is the reason that its figures are missing."""


class PeerProcess:
    """Asks a worker (worker.py) over its pipes, one request at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the worker. Raises PeerError where the command cannot be started."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(environment or {})},
                cwd=Path(__file__).parents[3],
            )
        except OSError as error:
            self._stderr.close()
            raise PeerError(f"cannot be started: {error}") from error
        self._buffer = b""

    def ask(self, request: Mapping[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
        """Return the answer. Raises PeerError for an error, a dead process, or no answer in time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(self._death()) from None
        answer: dict[str, Any] = json.loads(self._read_line(seconds))
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _read_line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(seconds):
                    self.close()
                    raise PeerError(f"no answer within {seconds:g} s")
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
                if not piece:
                    raise PeerError(self._death())
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> str:
        """Return the last output of an ended process."""
        code = self._process.wait(timeout=10)
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with {code}: {lines[-1][:300] if lines else 'it said nothing'}"

    def close(self) -> None:
        """End the process, which waits for its next request or hangs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stderr.close()

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Asked:
    """One question as every engine gets it."""

    prompt: list[int]  # token ids
    grammar: str
    max_tokens: int


@dataclass(frozen=True)
class Answered:
    """A plan, the milliseconds until it was complete, and the model's forwards."""

    milliseconds: float
    tokens: tuple[int, ...]
    forwards: int


class Engine(Protocol):
    """One engine in one setting. Every method may raise PeerError."""

    plans: Sequence[str]  # the ways in which it decodes a plan

    def forwards(self, rows: int, times: int) -> list[float]:
        """Return the milliseconds of forwards of `rows` rows, the fastest first."""

    def plan(self, how: str, asked: Asked) -> Answered:
        """Decode one plan."""


@dataclass
class Comparison:
    """The measurements by engine; `failed` has the reason of each engine that did not finish."""

    forwards: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    plans: dict[tuple[str, str], list[Answered]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def forward_ms(self, name: str) -> dict[str, float]:
        """Return the median of all turns, by rows."""
        return {str(rows): round(statistics.median(each), 2) for rows, each in self.forwards[name].items()}

    def plan_ms(self, name: str, how: str, ours: Sequence[Answered]) -> dict[str, Any]:
        """Return quantiles, and the share of plans with the tokens of `ours`."""
        answers = self.plans[name, how]
        times = [one.milliseconds for one in answers]
        same = [one.tokens == other.tokens for one, other in zip(answers, ours, strict=True)]
        return {
            "p50_ms": round(statistics.median(times), 1),
            "p99_ms": round(quantile(times, 0.99), 1),
            "forwards": round(statistics.fmean(one.forwards for one in answers), 2),
            "identical_to_ours": round(sum(same) / len(same), 4),
        }


def compare(
    engines: Mapping[str, Engine],
    asked: Sequence[Asked],
    turns: int,
    *,
    rows: Sequence[int] = ROWS,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Measure all engines in short turns, in rotating order, so that drift affects all alike."""
    found = Comparison()
    for number in range(turns):
        progress(f"forwards, turn {number + 1} of {turns}")
        for count in rows:
            for name in _rotated(engines, number, found.failed):
                series = found.forwards.setdefault(name, {each: [] for each in rows})
                with _listed(found, name):
                    series[count].append(engines[name].forwards(count, TIMES)[0])
    for number, question in enumerate([asked[0], *asked]):  # the first once more than counts: it warms up
        if number % 10 == 0:
            progress(f"plans, question {number} of {len(asked)}")
        for name in _rotated(engines, number, found.failed):
            for how in engines[name].plans:
                with _listed(found, name):
                    answer = engines[name].plan(how, question)
                    if number:
                        found.plans.setdefault((name, how), []).append(answer)
    return found


def _rotated(engines: Mapping[str, Engine], number: int, failed: Mapping[str, str]) -> list[str]:
    names = list(engines)
    first = number % len(names)
    return [name for name in names[first:] + names[:first] if name not in failed]


@contextmanager
def _listed(found: Comparison, name: str) -> Iterator[None]:
    """Record why an engine failed, and let the others go on."""
    try:
        yield
    except PeerError as error:
        found.failed.setdefault(name, str(error))


_STRATEGIES: dict[str, Strategy] = {"Medusa": "medusa", "greedy with fast-forward": "autoregressive"}


Reference = tuple[list[int], NDArray[np.float32]]  # tokens, and the logits [V] after them


class Ours:
    """The engine of a replica."""

    def __init__(self, model_dir: Path, settings: Settings) -> None:
        torch.set_num_threads(1)
        loaded = load_model(model_dir, settings.cache_dir, kept_dtype(settings.dtype))
        self._loaded = loaded
        self._vocabulary = Vocabulary.load(model_dir)
        self.forward = build_forward(loaded, settings.dtype, settings.kernel)
        self._model = TorchModel(loaded, self.forward, settings.max_prompt_tokens)
        self._cache = self.forward.new_cache(settings.max_prompt_tokens)
        self._questions: dict[tuple[int, ...], Question] = {}
        self.plans = [name for name, strategy in _STRATEGIES.items() if strategy in self._model.strategies]

    @property
    def kernel(self) -> str:
        """The kernel, as figures name it."""
        return kernel_in_use(self._model)

    def ask(self, question: Question) -> Asked:
        """Return a question in the form that every engine gets."""
        encoded = self._loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids
        prompt = [self._loaded.bos_token_id, *encoded]
        self._questions[tuple(prompt)] = question
        return Asked(prompt, plan_grammar(question, self._vocabulary), self._loaded.max_tokens)

    def forwards(self, rows: int, times: int) -> list[float]:
        """Measure the layers and the final norm, after the prefix."""
        taken = []
        for _ in range(times):
            self._cache.reset()
            self.forward.forward(torch.arange(PREFIX), torch.arange(PREFIX), self._cache)
            self._cache.keep(range(PREFIX))
            started = time.perf_counter()
            self.forward.forward(torch.arange(rows), torch.arange(rows) + PREFIX, self._cache)
            taken.append((time.perf_counter() - started) * 1000)
        return sorted(taken)

    def plan(self, how: str, asked: Asked) -> Answered:
        """Decode as a replica does, tokenising the prompt and compiling the grammar included."""
        prompt = render_prompt(self._questions[tuple(asked.prompt)])
        started = time.perf_counter()
        result = self._model.generate(
            GenerationRequest(prompt=prompt, grammar=asked.grammar, strategy=_STRATEGIES[how])
        )
        return Answered((time.perf_counter() - started) * 1000, tuple(result.tokens), result.forwards)

    def references(self, asked: Sequence[Asked]) -> list[Reference]:
        """Return our logits at every position of these questions' plans, with the tokens before it."""
        found = []
        for one in asked:
            plan = self.plan("greedy with fast-forward", one).tokens
            for length in range(len(plan)):
                before = [*one.prompt, *plan[:length]]
                found.append((before, self.logits(before)))
        return found

    def logits(self, prompt: list[int]) -> NDArray[np.float32]:
        """Return the logits [V] after the prompt."""
        self._cache.reset()
        hidden = self.forward.forward(torch.tensor(prompt), torch.arange(len(prompt)), self._cache)
        return cast(NDArray[np.float32], self.forward.lm_head.logits(hidden[-1:])[0].float().numpy())


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
        with _pinned(processors):
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


@contextmanager
def _pinned(processors: Sequence[int]) -> Iterator[None]:
    """Pin this process to some processors, where the system has such a call."""
    before = os.sched_getaffinity(0) if processors else set()
    if processors:
        os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        if processors:
            os.sched_setaffinity(0, before)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


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
    print(json.dumps(figure["threads"], indent=1))


if __name__ == "__main__":
    main()
