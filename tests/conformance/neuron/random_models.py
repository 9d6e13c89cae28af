"""Our loop over the real NxDI source on a CPU, beside Hugging Face's greedy `generate` and NxDI's own Medusa loop.

Random Llamas with heads that rank the right token among their best are decoded by each, as plain torch and as
torch-xla's graphs, whose operations are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rehearsal.bench.neuron_loop import EmulatedGraph, over
from service.decoding.generation import generate
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads, MedusaProposer
from service.decoding.tree import MedusaTree
from service.engines.neuron.compilation import medusa_shape, quantise_checkpoint
from service.engines.neuron.configuration import CANDIDATES, CompileSettings, GraphKind, Weights, chain, forward_shape
from service.engines.neuron.configuration import neuron_arguments as configured
from service.engines.neuron.forward import CompiledTarget, ForwardShape
from service.engines.neuron.hugging_face import Unconstrained
from service.engines.neuron.model import NeuronModel
from service.engines.torch_engine import build_forward
from service.weights.checkpoint import read_weights
from service.weights.exporting import export_model
from service.weights.head_layouts import PEAKPLAN
from service.weights.model_folder import load_model
from tests.conformance.neuron import nxdi_on_cpu

VOCABULARY, HIDDEN, LAYERS, HEADS = 64, 96, 2, 4
PROMPT, NEW_TOKENS, SEQUENCE = 12, 48, 128
KINDS: tuple[GraphKind, ...] = ("tree", "chain")
TREE = (
    *((rank,) for rank in range(3)),
    *((rank, other) for rank in range(3) for other in range(2)),
    *((0, 0, rank) for rank in range(3)),
    *((1, 0, 0), (0, 1, 0), (0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)),
)


@dataclass(frozen=True)
class RandomModel:
    """A checkpoint in NxDI's layout, a prompt, and its greedy continuation."""

    folder: Path
    prompt: list[int]
    greedy: list[int]


def random_model(
    folder: Path, seed: int, attention: tuple[int, int] = (4, 2), vocabulary: int = VOCABULARY
) -> RandomModel:
    """Make a random Llama and heads fitted to its greedy continuation: the right guess is among their best three.

    `attention` has the numbers of its query heads and of its key and value heads.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=attention[0],
        num_key_value_heads=attention[1],
        vocab_size=vocabulary,
        max_position_embeddings=2 * SEQUENCE,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=2 / parameter.shape[1] ** 0.5)
    torch.nn.init.zeros_(model.lm_head.weight[0].detach())  # token 0 is never best: it trips NxDI's own loop once more
    prompt = torch.randint(1, vocabulary, (1, PROMPT))
    with torch.inference_mode():
        mask = torch.ones_like(prompt)
        ids = model.generate(prompt, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False)
        hidden = model.model(ids).last_hidden_state[0]
    model.save_pretrained(folder)
    torch.save(_fitted_heads(hidden, ids[0], vocabulary), folder / "medusa_heads.pt")
    return RandomModel(folder, prompt[0].tolist(), ids[0, PROMPT:].tolist())


def _fitted_heads(hidden: torch.Tensor, ids: torch.Tensor, vocabulary: int) -> dict[str, torch.Tensor]:
    """Make heads without a residual block whose LM head ranks the right token 0, 1 or 2 at each position of `ids`."""
    state = {}
    for head in range(HEADS):
        count = len(ids) - 2 - head
        wanted = torch.nn.functional.one_hot(ids[2 + head :], vocabulary).float()
        for position in range(count):
            rivals = torch.randperm(vocabulary)[: int(torch.multinomial(torch.tensor([0.6, 0.25, 0.15]), 1))]
            wanted[position, rivals[rivals != ids[position + 2 + head]]] = 2.0
        fitted = torch.linalg.lstsq(hidden[:count].double(), wanted.double()).solution.T.float()
        state[f"medusa_head_{head}.0.linear.weight"] = torch.zeros(HIDDEN, HIDDEN)
        state[f"medusa_head_{head}.0.linear.bias"] = torch.zeros(HIDDEN)
        state[f"medusa_head_{head}.1.weight"] = fitted.contiguous()
    return state


def positions(tree: Sequence[Sequence[int]]) -> int:
    """Return the cache positions: 128, or the next 64 more that a prompt, an answer and a step's rows need."""
    needed = ForwardShape(HEADS, len(tree) + 1, PROMPT, seq_len=0).needed(PROMPT, NEW_TOKENS)
    return max(SEQUENCE, -(-needed // 64) * 64)


def neuron_arguments(tree: Sequence[Sequence[int]], kind: GraphKind = "tree") -> dict[str, Any]:
    """Return NeuronConfig's arguments as in a real compilation, with lengths for a CPU."""
    if kind == "chain":
        plain = {"speculation_length": len(tree) + 1, "medusa_tree": [list(choice) for choice in chain(HEADS)]}
        medusa = ("is_medusa", "medusa_speculation_length", "on_device_sampling_config")
        return {name: value for name, value in neuron_arguments(tree).items() if name not in medusa} | plain
    return {
        "batch_size": 1,
        "seq_len": positions(tree),
        "max_new_tokens": NEW_TOKENS,
        "is_medusa": True,
        "medusa_speculation_length": len(tree) + 1,
        "num_medusa_heads": HEADS,
        "medusa_tree": [list(choice) for choice in tree],
        "on_device_sampling_config": {"top_k": CANDIDATES, "global_topk": CANDIDATES},
    }


def target_of(model: Any, each: RandomModel, tree: Sequence[Sequence[int]], sequence: int = 0) -> CompiledTarget:
    """Return our loop's target over an NxDI model with our graph; heads and LM head are read from the checkpoint."""
    lm_head = LmHead(read_weights(each.folder)["lm_head.weight"])
    state = torch.load(each.folder / "medusa_heads.pt", weights_only=True)
    heads = MedusaHeads.from_state_dict({name.removeprefix("medusa_head_"): tensor for name, tensor in state.items()})
    config = model.neuron_config
    is_chain = not config.is_medusa
    shape = ForwardShape(HEADS, len(tree) + 1, SEQUENCE // 2, positions(tree), config.batch_size, is_chain)
    return CompiledTarget(model, shape, lm_head, heads, sequence=sequence)


def ours(model: Any, each: RandomModel, tree: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Return the tokens of our loop over an NxDI model with our graph, and its forwards."""
    target = target_of(model, each, tree)
    choices = chain(HEADS) if target.shape.is_chain else tree
    proposer = MedusaProposer(target, MedusaTree.from_choices(choices, HEADS))
    generation = generate(
        target, proposer, each.prompt, Unconstrained(model.config.vocab_size, ()), max_tokens=NEW_TOKENS
    )
    return generation.tokens, generation.statistics.forwards


def shipped_model(
    model_dir: Path, cache_dir: Path, folder: Path, weights: Weights = "as computed"
) -> tuple[NeuronModel, NeuronModel]:
    """Return a model folder as the Neuron engine serves it: over the real NxDI in float32, and over our own forward."""
    checkpoint = export_model(model_dir, cache_dir, PEAKPLAN, folder).folder
    torch.save({}, checkpoint / "medusa_heads.pt")  # as `compile_model` does: the host multiplies the heads
    settings = CompileSettings(
        max_prompt_tokens=128, max_new_tokens=64, sequence_length=256, dtype="float32", weights=weights
    )
    arguments = configured(medusa_shape(checkpoint), settings)
    if weights == "int8":
        quantise_checkpoint(checkpoint)
    loaded = load_model(model_dir, cache_dir)
    model, shape = build_forward(loaded, "float32"), forward_shape(arguments)
    graphs: list[Any] = [nxdi_on_cpu.cpu_model(checkpoint, arguments), EmulatedGraph(model, shape)]
    over_nxdi, over_ours = (over(graph, shape, model_dir, loaded, model) for graph in graphs)
    return over_nxdi, over_ours
