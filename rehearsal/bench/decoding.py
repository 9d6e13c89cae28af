"""Speed of decoding strategies side by side in one run: `make bench` writes docs/figures/decoding.json and .png.

Every question is planned by every strategy before the next question, in an order that rotates, on the same weights,
dtype and threads as a replica in service. Baselines: greedy decoding under the same grammar without and with
fast-forward, and Hugging Face's `generate` on the same tuned weights (which knows no grammar). Then the
real server is measured. The figure keeps one entry for each machine and kernel, and a run replaces its own.

Beside it, turns.json says what the prefix cache saves a conversation's turns.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib import pyplot
from transformers import LlamaConfig, LlamaForCausalLM

from rehearsal.bench.conversations import committed
from rehearsal.bench.machine import (
    describe_machine,
    is_forced,
    kernel_in_use,
    machine_name,
    quantile,
    write_machine,
)
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from rehearsal.client import Caller, Sample
from rehearsal.server import serving
from service.decoding.target import CausalLM
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch_engine import TorchModel, build_forward, kept_dtype, load
from service.planner.prompt import PlanTask, render_prompt
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import KernelChoice, Precision, Strategy
from service.weights.model_folder import ModelFolderError, load_model

QUESTIONS = 100
EARLIER = (0, 1, 4)  # messages before the turn that is told
FORWARD_ROWS = (1, 4, 8, 16, 32)
_REPEATS = 15
_PREFIX = 24  # cached positions while a plan is written
_PRECISIONS: tuple[Precision, ...] = ("int8", "bfloat16", "float32")


def measure_breakdown(
    model: TorchModel, vocabulary: Vocabulary, reader: Reader | None, questions: Sequence[Question]
) -> dict[str, dict[str, float]]:
    """Measure milliseconds for a plan and rows for a forward, of greedy (fast-forward) and Medusa decoding in turns."""
    strategies: dict[str, Strategy] = {"greedy with fast-forward": "autoregressive", "medusa": "medusa"}
    parts: dict[str, list[dict[str, float]]] = {name: [] for name in strategies}
    for question in questions[:QUESTIONS]:
        for name, strategy in strategies.items():
            if strategy in model.strategies:
                parts[name].append(_parts(model, PlanTask(question, vocabulary, reader=reader).request(strategy)))
    return {name: _means(each) for name, each in parts.items() if each}


def _parts(model: TorchModel, request: GenerationRequest) -> dict[str, float]:
    """Return the parts of one plan's time. Tracing takes time itself, so the total is that of a run without it."""
    started = time.perf_counter()
    model.generate(request)
    whole = (time.perf_counter() - started) * 1000
    traced: GenerationResult = model.generate(replace(request, trace=True))
    first, *later = traced.steps
    steps = sum(step.milliseconds for step in traced.steps)
    draft = sum(step.draft_milliseconds for step in traced.steps)
    forwards = sum(step.forward_milliseconds for step in later)
    return {
        "whole_ms": whole,
        "prompt_forward_ms": first.forward_milliseconds,
        "other_forwards_ms": forwards,
        "drafting_ms": draft,
        "verifying_ms": steps - draft - forwards - first.forward_milliseconds,
        "grammar_and_rest_ms": whole - steps,
        "prompt_rows": float(traced.prompt_tokens + len(first.nodes)),
        "other_forwards": float(len(later)),
        "other_rows": float(sum(len(step.nodes) for step in later)),
    }


def _means(parts: Sequence[dict[str, float]]) -> dict[str, Any]:
    means = {name: statistics.fmean(each[name] for each in parts) for name in parts[0]}
    rows = means.pop("other_rows") / max(means["other_forwards"], 1e-9)
    return {name: round(value, 2) for name, value in means.items()} | {"rows_an_other_forward": round(rows, 2)}


def measure_turns(
    models: dict[str, TorchModel], vocabulary: Vocabulary, reader: Reader | None, talks: Sequence[Sequence[str]]
) -> list[Any]:
    """Return for each number of earlier messages the processor's milliseconds of a turn by model, at the median.

    Every turn of a conversation is planned by each model before the next turn. Raises ValueError where tokens differ.
    """
    rows: dict[int, list[dict[str, float]]] = {earlier: [] for earlier in EARLIER}
    for number, talk in enumerate(talks):
        for earlier in range(max(EARLIER) + 1):
            question = Question.parse(talk[earlier], talk[:earlier])
            request = PlanTask(question, vocabulary, reader=reader).request("medusa")
            row, tokens = dict[str, float](), set[tuple[int, ...]]()
            for name in list(models)[:: 1 if (number + earlier) % 2 else -1]:
                started = time.thread_time()
                result = models[name].generate(request)
                row[name] = 1000 * (time.thread_time() - started)
                tokens.add(tuple(result.tokens))
                row["cached_tokens"] = max(row.get("cached_tokens", 0), result.cached_tokens)
                row["prompt_tokens"] = result.prompt_tokens
            if len(tokens) > 1:
                raise ValueError(f"plans differ after {earlier} messages of conversation {number}")
            if earlier in rows:
                rows[earlier].append(row)
    return [
        {"earlier": earlier, **{key: round(statistics.median(row[key] for row in each), 1) for key in sorted(each[0])}}
        for earlier, each in rows.items()
    ]


def measure_forwards(model_dir: Path, cache_dir: Path, kernel: KernelChoice) -> dict[str, dict[int, float]]:
    """Return medians on one thread; a precision that this machine does not support is left out."""
    torch.set_num_threads(1)
    models = _models(model_dir, cache_dir, kernel)
    caches = {precision: model.new_cache(_PREFIX + max(FORWARD_ROWS)) for precision, model in models.items()}
    for precision, model in models.items():
        model.forward(torch.arange(_PREFIX), torch.arange(_PREFIX), caches[precision])
        caches[precision].keep(range(_PREFIX))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(_REPEATS):
        for rows in FORWARD_ROWS:
            tokens, positions = torch.arange(rows), torch.arange(rows) + _PREFIX
            for precision, model in models.items():
                # A replica's forward follows one of its own, as the limits' reads do: another model's would find caches
                # full of what this one never reads.
                model.forward(tokens, positions, caches[precision])
                started = time.perf_counter()
                model.forward(tokens, positions, caches[precision])
                times.setdefault((precision, rows), []).append((time.perf_counter() - started) * 1000)
    return {
        precision: {rows: round(statistics.median(times[precision, rows]), 2) for rows in FORWARD_ROWS}
        for precision in models
    }


def _models(model_dir: Path, cache_dir: Path, kernel: KernelChoice) -> dict[str, CausalLM]:
    models: dict[str, CausalLM] = {}
    for precision in _PRECISIONS:
        try:
            loaded = load_model(model_dir, cache_dir, kept_dtype(precision))
            chosen: KernelChoice = kernel if precision == "int8" else "torch"
            models[precision] = build_forward(loaded, precision, chosen)
        except ModelFolderError as error:
            print(error)
    return models


FIGURE = Path("docs/figures/decoding.json")
WARM_UP = 5


@dataclass(slots=True)
class Series:
    """The results of one strategy, question by question."""

    milliseconds: list[float] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "p50_ms": round(statistics.median(self.milliseconds), 1),
            "p99_ms": round(quantile(self.milliseconds, 0.99), 1),
            "forwards": round(statistics.fmean(self.forwards), 2),
            "tokens": round(statistics.fmean(map(len, self.tokens)), 2),
            "tokens_per_forward": round(sum(map(len, self.tokens)) / sum(self.forwards), 2),
        }


def our_strategy(
    model: TorchModel, vocabulary: Vocabulary, reader: Reader | None, strategy: Strategy, *, fast_forward: bool
) -> Callable[[Question], GenerationResult]:
    """Return one of our own strategies, reading and grammar compilation included, as the service runs it."""

    def plan(question: Question) -> GenerationResult:
        task = PlanTask(question, vocabulary, reader=reader)
        return model.generate(task.request(strategy, fast_forward=fast_forward))

    return plan


def interleave(
    strategies: dict[str, Callable[[Question], GenerationResult]], questions: Sequence[Question]
) -> dict[str, Series]:
    """Run every strategy on every question, in rotating order, so that drift of the machine affects all alike."""
    names = list(strategies)
    series = {name: Series() for name in names}
    for question in questions[:WARM_UP]:
        for name in names:
            strategies[name](question)
    for index, question in enumerate(questions):
        for name in names[index % len(names) :] + names[: index % len(names)]:
            started = time.perf_counter()
            result = strategies[name](question)
            one = series[name]
            one.milliseconds.append((time.perf_counter() - started) * 1000)
            one.forwards.append(result.forwards)
            one.tokens.append(tuple(result.tokens))
    return series


def compare(series: dict[str, Series]) -> dict[str, Any]:
    """Compare Medusa with each baseline: ratios of medians and of forwards, and share of identical tokens."""
    ours, greedy = series["medusa"], series["greedy with fast-forward"]
    same = [one == other for one, other in zip(ours.tokens, greedy.tokens, strict=True)]
    return {
        "identical_to_greedy": round(sum(same) / len(same), 4),
        "forwards_share_of_greedy": round(sum(ours.forwards) / sum(greedy.forwards), 3),
        "speedup_p50": {
            peer: round(statistics.median(one.milliseconds) / statistics.median(ours.milliseconds), 2)
            for peer, one in series.items()
            if peer != "medusa"
        },
    }


_COLOURS = {
    "hugging face generate": "#9aa5b1",
    "greedy": "#7b8794",
    "greedy with fast-forward": "#3e7cb1",
    "medusa": "#d9480f",
}


def plot_decoding(series: dict[str, Series], machine: str, path: Path) -> None:
    """Plot the cumulative share of questions planned within a time; the 300 ms limit is marked."""
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120, layout="constrained")
    for name, one in series.items():
        times = sorted(one.milliseconds)
        shares = [(index + 1) / len(times) for index in range(len(times))]
        axes.step(times, shares, where="post", label=name, color=_COLOURS.get(name), linewidth=2)
    axes.axvline(300, color="#c92a2a", linestyle=":", linewidth=1)
    axes.annotate("300 ms", (300, 0.55), xytext=(4, 0), textcoords="offset points", color="#c92a2a")
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a plan (log scale), one replica, one request at a time")
    axes.set_ylabel("share of questions planned")
    axes.set_title(f"A plan's time by decoding strategy, same weights, same questions, one run\n{machine}")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right")
    figure.savefig(path)
    pyplot.close(figure)


class HuggingFaceGenerate:
    """`generate` of transformers, greedy, with its own cache; it knows no grammar and stops at the end token."""

    def __init__(self, model_dir: Path, settings: Settings) -> None:
        loaded = load_model(model_dir, settings.cache_dir)
        self._loaded = loaded
        shape = loaded.config
        config = LlamaConfig(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab_size,
            rms_norm_eps=shape.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
            max_position_embeddings=shape.max_position_embeddings,
            tie_word_embeddings=shape.tie_word_embeddings,
        )
        dtype = torch.float32 if settings.dtype == "float32" else torch.bfloat16  # its fastest on a CPU
        self._model: Any = LlamaForCausalLM(config).to(dtype).eval()  # type: ignore[arg-type]  # its stub is wrong
        missing, unexpected = self._model.load_state_dict(loaded.weights, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"weights do not fit transformers' Llama: missing {missing}, unexpected {unexpected}")
        self._model.tie_weights()

    def plan(self, question: Question) -> GenerationResult:
        """Run one generation, tokenising included."""
        started = time.perf_counter()
        encoded = self._loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids
        prompt = torch.tensor([[self._loaded.bos_token_id, *encoded]])
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=self._loaded.max_tokens,
                do_sample=False,
                eos_token_id=self._loaded.eos_token_id,
                pad_token_id=self._loaded.eos_token_id,
            )
        tokens = output[0, prompt.shape[1] :].tolist()
        tokens = [token for token in tokens if token != self._loaded.eos_token_id]
        return GenerationResult(
            text=self._loaded.tokenizer.decode(tokens),
            tokens=tokens,
            stop_reason="finished",
            prompt_tokens=prompt.shape[1],
            plan_tokens=len(tokens),
            forwards=output.shape[1] - prompt.shape[1],
            decisions=len(tokens),
            forced_tokens=0,
            seconds=time.perf_counter() - started,
        )


def measure_service(settings: Settings, questions: Sequence[Question]) -> dict[str, Any]:
    """Ask a server that decodes every plan all questions, by one caller and by two."""
    with serving({"PEAKPLAN_MODEL_DIR": settings.model_dir.resolve(), "PEAKPLAN_CACHE_ENTRIES": 0}) as server:
        _asked(server.url, questions[:20], 2)  # warm-up
        found: dict[str, Any] = {f"concurrency_{callers}": _asked(server.url, questions, callers) for callers in (1, 2)}
        pages = [int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) for pid in server.replicas()]
        return {**found, "replica_rss_mb": max(pages) * os.sysconf("SC_PAGE_SIZE") // 2**20}


def _asked(url: str, questions: Sequence[Question], callers: int) -> dict[str, Any]:
    """Return quantiles of milliseconds, and the share of the model's plans. Raises RuntimeError for a refusal."""
    remaining = iter(questions)  # the callers share it

    def ask(caller: Caller) -> list[Sample]:
        bodies = ({"query": each.text, "history": each.utterances[:-1], "deadline_ms": 2000} for each in remaining)
        return [caller.ask(json.dumps(body).encode()) for body in bodies]

    with ThreadPoolExecutor(callers) as pool, ExitStack() as stack:
        connected = [stack.enter_context(closing(Caller(url))) for _ in range(callers)]
        samples = [sample for found in pool.map(ask, connected) for sample in found]
    if refused := [sample for sample in samples if sample.status != 200]:
        raise RuntimeError(f"the server answered {refused[0].status}: {refused[0].body.decode()}")
    times = [1000 * sample.latency for sample in samples]
    return {
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(quantile(times, 0.99), 1),
        "max_ms": round(max(times), 1),
        "answered_by_model": round(sum(json.loads(each.body)["source"] == "model" for each in samples) / len(times), 4),
    }


def measured(folder: Path, count: int) -> tuple[dict[str, Any], dict[str, Series]]:
    """Return the figure of a model folder over so many questions, and each strategy's times."""
    settings = Settings(model_dir=folder, prefix_cache_bytes=0)  # each question is asked by every strategy
    questions = dev_questions(count) if has_dev_data() else own_questions(count)
    model = load(settings.engine_config)
    vocabulary, reader = Vocabulary.load(settings.model_dir), Reader.of_model(settings.model_dir)
    strategies = {
        "hugging face generate": HuggingFaceGenerate(folder, settings).plan,
        "greedy": our_strategy(model, vocabulary, reader, "autoregressive", fast_forward=False),
        "greedy with fast-forward": our_strategy(model, vocabulary, reader, "autoregressive", fast_forward=True),
        "medusa": our_strategy(model, vocabulary, reader, "medusa", fast_forward=True),
    }
    series = interleave(strategies, questions)
    breakdown = measure_breakdown(model, vocabulary, reader, questions)
    precision, kernel = model.precision, kernel_in_use(model)
    del model, strategies["hugging face generate"]
    figure = {
        "command": "make bench",
        "machine": describe_machine(),
        "kernel": kernel,
        "forced": is_forced(),
        "questions": {"count": len(questions), "from": "dev rows" if has_dev_data() else "our own questions"},
        "dtype": precision,
        "threads": 1,
        "strategies": {name: one.summary() for name, one in series.items()},
        "medusa": compare(series),
        "breakdown": breakdown,
        "forward_ms": measure_forwards(folder, settings.cache_dir, settings.kernel),
        "service": measure_service(settings, questions),
    }
    return figure, series


def turns_of(folder: Path, count: int = 60) -> dict[str, Any]:
    """Return the figure of what the prefix cache saves so many conversations."""
    settings = Settings(model_dir=folder)
    torch.set_num_threads(1)
    loaded = load_model(settings.model_dir, settings.cache_dir, kept_dtype(settings.dtype))
    forward = build_forward(loaded, settings.dtype, settings.kernel)
    models = {
        name: TorchModel(loaded, forward, settings.max_prompt_tokens, prefix_cache_bytes=room)
        for name, room in (("with", settings.prefix_cache_bytes), ("without", 0))
    }
    talks = [[turn.say for turn in talk.turns] for talk in committed()["t1"]]
    talks = [talk for talk in talks if len(talk) > max(EARLIER)][:count]
    vocabulary, reader = Vocabulary.load(settings.model_dir), Reader.of_model(settings.model_dir)
    measure_turns(models, vocabulary, reader, talks[:1])  # what is made once is made
    for model in models.values():
        if model.prefixes is not None:
            model.prefixes.clear()
    turns = measure_turns(models, vocabulary, reader, talks)
    return {"machine": describe_machine(), "conversations": len(talks), "turns": turns}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--json", action="store_true", help="print the figure as one line of JSON")
    arguments = parser.parse_args()
    figure, series = measured(arguments.model, arguments.questions)
    name = machine_name(figure["kernel"])
    write_machine(arguments.output, name, figure, is_plotted=not is_forced())
    write_machine(arguments.output.with_name("turns.json"), name, turns_of(arguments.model))
    plot = f"{arguments.output.stem}-{figure['kernel']}.png" if is_forced() else f"{arguments.output.stem}.png"
    plot_decoding(series, name, arguments.output.with_name(plot))
    brief = {name: figure[name] for name in ("strategies", "medusa", "service")}
    print(json.dumps(figure) if arguments.json else json.dumps(brief, indent=1))


if __name__ == "__main__":
    main()
