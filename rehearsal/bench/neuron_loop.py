"""`python -m rehearsal.bench.neuron_loop`: the Neuron engine's loop over a graph emulated on this CPU.

The shipped model plays the device behind the forward contract of `service/engines/neuron/forward.py`: a fixed number of
rows, caches of absolute positions, moves and masks. Forwards a plan are those of a device. The milliseconds are
processor time of the host's own part, all that is not a forward, on this machine. The figures go to
docs/figures/neuron_loop.json; a run replaces those of its own rows. Nothing here runs on Neuron hardware.
"""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rehearsal.bench.machine import describe_machine, quantile, write_figure
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.decoding.llama import ForwardInput
from service.decoding.target import CausalLM
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import GraphKind, chain
from service.engines.neuron.forward import CompiledModel, CompiledTarget, ForwardShape, MedusaArguments
from service.engines.neuron.model import LEAST_LIKELY, NeuronModel
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.text_model import Drafting
from service.engines.torch_engine import build_forward, kept_dtype
from service.planner.prompt import PlanTask
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.weights.model_folder import LoadedModel, load_model, read_card

OUTPUT = Path(__file__).parents[2] / "docs" / "figures" / "neuron_loop.json"
QUESTIONS = 150
SEQUENCE = 576


@dataclass(frozen=True)
class States:
    """A forward's output, as NxDI names it."""

    hidden_states: Tensor


class EmulatedGraph:
    """A graph's forward computed by a model on the CPU. `seconds` is the processor time spent in it."""

    def __init__(self, model: CausalLM, shape: ForwardShape) -> None:
        self.seconds = 0.0
        self._model = model
        self._shape = shape
        self._caches = [model.new_cache(shape.seq_len) for _ in range(shape.batch_size)]

    @torch.inference_mode()
    def forward(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        medusa_args: MedusaArguments | None = None,
    ) -> States:
        """Read a prompt, or a tree of every sequence; those that have no part in it are left alone."""
        started = time.process_time()
        rows = self._shape.rows
        if self._shape.is_chain and input_ids.shape[1] == rows:
            unmoved = torch.zeros(len(input_ids), 1, dtype=torch.long)
            medusa_args = (unmoved, unmoved, torch.ones(rows, rows).tril().expand(len(input_ids), -1, -1), position_ids)
        if medusa_args is None:
            self._caches[0].reset()
            states = self._model.forward(input_ids[0], position_ids[0], self._caches[0])[None, -1:]
        else:
            states = self._trees(input_ids, attention_mask, position_ids, medusa_args)
        self.seconds += time.process_time() - started
        return States(states)

    def _trees(self, tokens: Tensor, visible: Tensor, positions: Tensor, arguments: MedusaArguments) -> Tensor:
        inputs, rows = [], []
        for row, (mask, slots) in enumerate(zip(*arguments[2:], strict=True)):
            cache = self._caches[row]
            cache.length = int(visible[row].sum())
            if int(slots[0]) == cache.length:
                inputs.append(ForwardInput(tokens[row], positions[row], cache, mask.bool()))
                rows.append(row)
        read = self._model.forward_batch(inputs)
        states = torch.zeros(*tokens.shape, read[0].shape[1])
        states[rows] = torch.stack(read).float()
        return states


def emulate(
    model_dir: Path, cache_dir: Path, rows: int, batch_size: int = 1, *, is_chain: bool = False
) -> tuple[NeuronModel, EmulatedGraph]:
    """Return the Neuron engine's model of a folder over an emulated graph of so many rows and sequences."""
    loaded, settings = load_model(model_dir, cache_dir, kept_dtype("auto")), Settings()
    model = build_forward(loaded, "auto")
    assert loaded.heads is not None, "a graph has heads"
    shape = ForwardShape(loaded.heads.num_heads, rows, settings.max_prompt_tokens, SEQUENCE, batch_size, is_chain)
    graph = EmulatedGraph(model, shape)
    return over(graph, shape, model_dir, loaded, model), graph


def over(
    graph: CompiledModel, shape: ForwardShape, model_dir: Path, loaded: LoadedModel, model: CausalLM
) -> NeuronModel:
    """Return the Neuron engine's model of a loaded folder over a graph; `model` has the host's products."""
    assert loaded.heads is not None, "a graph has heads"
    heads = loaded.heads.with_products(model.linear)
    sequences = range(shape.batch_size)
    targets = [CompiledTarget(graph, shape, model.lm_head, heads, sequence=number) for number in sequences]
    tree = MedusaTree.from_choices(chain(shape.num_heads) if shape.is_chain else loaded.tree, shape.num_heads)
    drafting = Drafting(tree, LEAST_LIKELY, copies=True)
    return NeuronModel(read_card(model_dir), loaded.tokenizer, targets, drafting)


def requests(model_dir: Path, count: int) -> list[GenerationRequest]:
    """Return the planner's requests for dev questions, or for our own where there are none."""
    questions = dev_questions(count) if has_dev_data() else own_questions(count)
    vocabulary, reader = Vocabulary.load(model_dir), Reader.of_model(model_dir)
    return [PlanTask(question, vocabulary, reader=reader).request("medusa") for question in questions]


def measure(
    model_dir: Path, cache_dir: Path, rows: int, count: int, *, compare: bool, kind: GraphKind = "tree"
) -> dict[str, Any]:
    """Plan questions; return forwards a plan and the host's milliseconds.

    `compare` decodes greedily, too: how many plans have greedy's tokens, and the forwards that those took.
    """
    model, graph = emulate(model_dir, cache_dir, rows, is_chain=kind == "chain")
    results: list[GenerationResult] = []
    host: list[float] = []
    greedy: list[GenerationResult] = []
    for request in requests(model_dir, count):
        graph.seconds, started = 0.0, time.process_time()
        results.append(model.generate(request))
        host.append(1e3 * (time.process_time() - started - graph.seconds))
        if compare:
            greedy.append(model.generate(replace(request, strategy="autoregressive")))
    forwards = [result.forwards for result in results]
    found = {
        "questions": count,
        "finished": sum(result.stop_reason == "finished" for result in results),
        "forwards": round(statistics.fmean(forwards), 2),
        "p99_forwards": quantile(forwards, 0.99),
        "host_ms_p50": round(statistics.median(host), 2),
        "host_ms_p99": round(quantile(host, 0.99), 2),
    }
    if compare:
        found["identical_to_greedy"] = sum(a.tokens == b.tokens for a, b in zip(results, greedy, strict=True))
        found["greedy_forwards"] = round(statistics.fmean(result.forwards for result in greedy), 2)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Write the figures and return the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m rehearsal.bench.neuron_loop", description=__doc__)
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument("--rows", type=int, nargs="+", default=[13, 48])
    parser.add_argument("--graphs", choices=["tree", "chain"], nargs="+", default=["tree", "chain"])
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--compare", action="store_true", help="decode greedily, too, and count equal plans")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    runs: dict[str, dict[str, Any]] = {}
    if arguments.output.is_file():
        runs = json.loads(arguments.output.read_text(encoding="utf-8"))["runs"]
    for rows, kind in product(arguments.rows, arguments.graphs):
        found = measure(
            arguments.model, settings.cache_dir, rows, arguments.questions, compare=arguments.compare, kind=kind
        )
        name = str(rows) if kind == "tree" else f"{rows} {kind}"
        runs[name] = found
        print(name, json.dumps(found), flush=True)
    figure = {
        "command": "peakplan bench neuron-loop"
        if arguments.output == OUTPUT
        else shlex.join(["python", "-m", "rehearsal.bench.neuron_loop", *sys.argv[1:]]),
        "hardware": "none of Neuron's: not run on Inferentia or Trainium",
        "machine": describe_machine(),
        "runs": runs,
    }
    write_figure(arguments.output, figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
