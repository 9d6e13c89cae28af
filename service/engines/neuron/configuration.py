"""NeuronConfig's arguments for NxDI, from a model folder, with the checks that NxDI itself lacks.

Each refusal names a setting that NxDI 0.8 would accept silently and then be wrong or slow (docs/decisions/0012).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.decoding.tree import MedusaTree
from service.engines.neuron.forward import ForwardShape

Chip = Literal["inf2", "trn1", "trn2"]
Weights = Literal["as computed", "int8"]
GraphKind = Literal["tree", "chain"]

# Degrees of tensor parallelism that NxDI supports (docs of AWS Neuron, NxD Inference features).
TENSOR_PARALLEL: dict[Chip, tuple[int, ...]] = {
    "inf2": (1, 2, 4, 8, 24),
    "trn1": (1, 2, 8, 16, 32),
    "trn2": (1, 2, 4, 8, 16, 32, 64),
}
# Physical NeuronCores of one that a program sees (the compiler's --lnc); 2 is Trainium2's default.
_LOGICAL: dict[Chip, int] = {"inf2": 1, "trn1": 1, "trn2": 2}
# Prompt lengths that are compiled beside the longest. Prompts average 11 tokens (99%: 27), and a graph reads a whole
# bucket: padded to 384, a prompt costs some twelve times the arithmetic of 32.
CONTEXT_BUCKETS = (32, 64, 128)
# NeuronConfig's arguments for what `quantise_checkpoint` writes; where that lies is added when it is read (`nxdi.py`).
INT8: Mapping[str, Any] = {
    "quantized": True,
    "quantization_type": "per_channel_symmetric",
    "quantization_dtype": "int8",
}
# The KV cache's default positions; a longer cache is rounded up to a multiple of the step.
SEQUENCE_LENGTH, _SEQUENCE_STEP = 512, 64
# NxDI has no Medusa graph without a sampler of so many best tokens (neuronx_distributed/utils/medusa_utils.py). Ours
# takes nothing from it (`nxdi.py`), and no tree that anybody has published goes beyond their ranks.
CANDIDATES = 10
# Of our own among NeuronConfig's arguments (`nxdi.py`).
WEIGHT_LAYOUT = "weight_layout"


class ConfigurationError(ValueError):
    """Raised for settings that NxDI would accept and get wrong; the message names each setting and what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Not compiled for Neuron: {'; '.join(problems)}.")
        self.problems = tuple(problems)


class CompileSettings(BaseModel):
    """Settings that a model is compiled with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chip: Chip = Field(default="inf2", description="instance family that will run it, the compiler's --target")
    tensor_parallel: int = Field(default=1, ge=1, description="NeuronCores that a replica spans; a chip has 2")
    max_prompt_tokens: int = Field(ge=2, description="longest prompt; NxDI's max_context_length")
    max_new_tokens: int = Field(ge=1, description="longest answer")
    sequence_length: int = Field(
        default=0,
        ge=0,
        description="positions in the KV cache, NxDI's seq_len; 0: 512, or the more that the rest needs",
    )
    context_buckets: tuple[int, ...] = Field(
        default=(), description="prompt lengths to compile; empty: 32, 64, 128 and the longest"
    )
    batch_size: int = Field(default=1, ge=1, description="requests that a replica decodes together")
    speculation_length: int = Field(default=0, ge=0, description="rows per step; 0: the tree's nodes and the root")
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    weights: Weights = Field(
        default="as computed",
        description="how the layers' weights are kept; int8: half the bytes, and some other tokens",
    )
    graph: GraphKind = Field(
        default="tree", description="what a step reads; chain: NxDI's plain speculation graph, in more steps a plan"
    )
    weight_layout: bool = Field(
        default=False,
        description="let the compiler choose the weights' layout for the step's graph (priority_model_idx)",
    )


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """The part of a model that decides how it compiles: Medusa heads, tree, the attention's heads."""

    num_heads: int
    tree: tuple[tuple[int, ...], ...]
    attention_heads: int = 1
    key_value_heads: int = 1


def chain(num_heads: int) -> tuple[tuple[int, ...], ...]:
    """Return the chain of each head's best guess."""
    return tuple((0,) * depth for depth in range(1, num_heads + 1))


def neuron_arguments(model: MedusaShape, settings: CompileSettings) -> dict[str, Any]:
    """Return NeuronConfig's arguments as plain data. Raises ConfigurationError naming everything that is wrong."""
    is_chain = settings.graph == "chain"
    rows = settings.speculation_length or len(model.tree) + 1
    buckets = sorted(set(settings.context_buckets)) or _default_buckets(settings.max_prompt_tokens, rows)
    positions = settings.sequence_length or fitting_length(
        settings.max_prompt_tokens, settings.max_new_tokens, model.num_heads, rows
    )
    arguments: dict[str, Any] = {
        "target": settings.chip,
        "batch_size": settings.batch_size,
        "tp_degree": settings.tensor_parallel,
        "torch_dtype": settings.dtype,
        "padding_side": "right",
        "seq_len": positions,
        "max_length": positions,
        "max_context_length": settings.max_prompt_tokens,
        "max_new_tokens": settings.max_new_tokens,
        "enable_bucketing": len(buckets) > 1,
        "context_encoding_buckets": buckets,
        "num_medusa_heads": model.num_heads,
        "medusa_tree": [list(choice) for choice in (chain(model.num_heads) if is_chain else model.tree)],
        "save_sharded_checkpoint": True,
    }
    # The plain graph, too, is of all positions: NxDI would compile one for each power of two below them.
    arguments |= {"speculation_length": rows, "token_generation_buckets": [positions]} if is_chain else _medusa(rows)
    if settings.weight_layout:
        arguments[WEIGHT_LAYOUT] = True
    if settings.weights == "int8":
        arguments |= INT8
    if _LOGICAL[settings.chip] > 1:
        arguments["logical_nc_config"] = _LOGICAL[settings.chip]
    problems = [*_model_problems(model, settings), *argument_problems(arguments)]
    if problems:
        raise ConfigurationError(problems)
    return arguments


def _medusa(rows: int) -> dict[str, Any]:
    return {
        "is_medusa": True,
        "medusa_speculation_length": rows,
        "on_device_sampling_config": {"top_k": CANDIDATES, "global_topk": CANDIDATES},
    }


def rows_of(arguments: Mapping[str, Any]) -> int:
    """Return the rows of a step of either graph."""
    rows: int = arguments.get("medusa_speculation_length") or arguments.get("speculation_length") or 0
    return rows


def fitting_length(prompt: int, new: int, num_heads: int, rows: int) -> int:
    """Return the cache positions for a prompt, an answer and a step's rows: 512, or the next multiple of 64."""
    needed = ForwardShape(num_heads, rows, prompt, seq_len=0).needed(prompt, new)
    return max(SEQUENCE_LENGTH, -(-needed // _SEQUENCE_STEP) * _SEQUENCE_STEP)


def _default_buckets(longest: int, rows: int) -> list[int]:
    """Return the ordinary buckets below the longest prompt, and above `rows`: shorter prompts are read as trees."""
    return [*(length for length in CONTEXT_BUCKETS if rows < length < longest), longest]


def forward_shape(arguments: Mapping[str, Any]) -> ForwardShape:
    """Return the input and output shapes of a graph with these arguments. Raises ConfigurationError for wrong ones."""
    problems = list(argument_problems(arguments))
    if problems:
        raise ConfigurationError(problems)
    return ForwardShape(
        num_heads=arguments["num_medusa_heads"],
        rows=rows_of(arguments),
        max_context_length=arguments["max_context_length"],
        seq_len=arguments["seq_len"],
        batch_size=arguments.get("batch_size", 1),
        is_chain=not arguments.get("is_medusa"),
    )


def arguments_of(neuron_config: object) -> dict[str, Any]:
    """Return the arguments that an existing NeuronConfig stands for."""
    sampling = getattr(neuron_config, "on_device_sampling_config", None)
    arguments = dict(vars(neuron_config))
    arguments["on_device_sampling_config"] = dict(vars(sampling)) if hasattr(sampling, "__dict__") else sampling
    return arguments


def _sampling(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return arguments.get("on_device_sampling_config") or {}


def _model_problems(model: MedusaShape, settings: CompileSettings) -> Iterator[str]:
    ranks, keys = settings.tensor_parallel, model.key_value_heads
    if keys != model.attention_heads and keys % ranks and ranks % keys:
        yield (
            f"tensor_parallel {ranks} does not divide the model's {keys} key and value heads, nor they it: NxDI 0.8 "
            "copies them for each of the attention's and then pads them as if it had not (gqa.py). Use 1"
        )
    possible = TENSOR_PARALLEL[settings.chip]
    if settings.tensor_parallel not in possible:
        yield (
            f"tensor_parallel {settings.tensor_parallel} is not possible on {settings.chip}: choose one of "
            f"{', '.join(map(str, possible))}"
        )


def argument_problems(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield each problem in NeuronConfig's arguments that NxDI would silently accept."""
    if bool(arguments.get("is_medusa")) == bool(arguments.get("speculation_length")):
        yield "one of is_medusa and speculation_length says what a step reads: set one of them"
        return
    yield from _mode_problems(arguments)
    yield from _tree_problems(arguments)
    yield from _length_problems(arguments)


_OFF = {
    "async_mode": "its outputs are not there when the loop needs them",
    "is_continuous_batching": "prompts are read as trees, by the graph of all sequences",
    "token_generation_batches": "every step is of all sequences",
    "is_block_kv_layout": "a step writes its rows into a contiguous cache",
    "is_prefix_caching": "a step writes its rows into a contiguous cache",
    "flash_decoding_enabled": "a step writes its rows into a contiguous cache",
    "k_cache_transposed": "a step does not write its rows into a transposed cache",
    "kv_quant_config": "nodes would be quantised twice",
    "kv_cache_tiling": "a step writes its rows into an untiled cache",
    "attn_tkg_nki_kernel_enabled": "the kernel takes no tree mask",
    "attn_tkg_builtin_kernel_enabled": "the kernel takes no tree mask",
    "attn_block_tkg_nki_kernel_enabled": "the kernel writes the cache itself",
    "layer_boundary_markers": "a step writes its rows into the cache as a whole",
    "output_logits": "candidates come back, not logits",
    "enable_fused_speculation": "Medusa drafts itself",
}


def _mode_problems(arguments: Mapping[str, Any]) -> Iterator[str]:
    if arguments.get("padding_side", "right") != "right":
        yield "padding_side left: tree rows are written at positions counted from the left. Use right"
    yield from (f"{name} is on: {reason}. Leave it out" for name, reason in _OFF.items() if arguments.get(name))
    sampling = _sampling(arguments)
    if not arguments.get("is_medusa"):
        return
    if not sampling:
        yield "on_device_sampling_config is missing: Medusa's candidates are chosen on the device"
    elif (candidates := sampling.get("global_topk", 256)) != CANDIDATES:
        yield (
            f"global_topk {candidates}: NxDI's Medusa code reads {CANDIDATES} a row and would take wrong guesses. "
            f"Use top_k {CANDIDATES} and global_topk {CANDIDATES}"
        )


def _tree_problems(arguments: Mapping[str, Any]) -> Iterator[str]:
    tree, heads = arguments.get("medusa_tree") or [], arguments.get("num_medusa_heads", 0)
    rows = rows_of(arguments)
    if heads < 1:
        yield f"num_medusa_heads {heads}: the model needs Medusa heads; train some (make train)"
    if not tree:
        yield "medusa_tree is empty: give the model a medusa_tree.json"
        return
    try:
        MedusaTree.from_choices(tree, heads)
    except ValueError as error:
        yield f"medusa_tree: {error}"
    ranks = sorted({rank for choice in tree for rank in choice if rank >= CANDIDATES})
    if ranks:
        yield f"medusa_tree asks for rank {ranks[-1]}: a head makes {CANDIDATES} guesses, rank 0 the best"
    if rows < len(tree) + 1:
        yield f"{rows} rows a step: the tree's {len(tree)} nodes and the root need {len(tree) + 1}"


def _length_problems(arguments: Mapping[str, Any]) -> Iterator[str]:
    missing = [name for name in ("max_context_length", "seq_len", "max_new_tokens") if not arguments.get(name)]
    if missing:
        yield f"{', '.join(missing)} must be given: NxDI's defaults bound nothing"
        return
    shape = ForwardShape(
        num_heads=arguments.get("num_medusa_heads", 0),
        rows=rows_of(arguments),
        max_context_length=arguments["max_context_length"],
        seq_len=arguments["seq_len"],
    )
    needed = shape.needed(shape.max_context_length, arguments["max_new_tokens"])
    if needed > shape.seq_len:
        yield (
            f"seq_len {shape.seq_len}: prompt, answer, heads + 1 and a step's rows may touch {needed} cache positions, "
            "and NxDI does not check where it writes. Raise it, or lower the lengths"
        )
    buckets = arguments.get("context_encoding_buckets") or [shape.max_context_length]
    if shape.rows in buckets:
        yield (
            f"context bucket {shape.rows} equals the rows of a step: NxDI tells a prompt from a tree by its length "
            "alone. Choose another bucket"
        )
    if (short := min(buckets)) < shape.rows and short != max(buckets):
        yield f"context bucket {short}: prompts of {shape.rows} tokens and less are read as trees. Leave it out"
    if max(buckets) != shape.max_context_length:
        yield (
            f"the largest context bucket is {max(buckets)}, and max_context_length {shape.max_context_length}: "
            "make them equal"
        )
