"""`peakplan compile`: compile a model folder into artifacts that an instance loads in seconds. Not run on hardware.

It takes minutes, once, on any machine with the pinned SDK's compiler; never at boot: `model.py` only reads what this
wrote. Before it takes them, it checks whether the weights fit this host's memory and the cores that a replica spans:
the kernel kills what takes too much without a word (aws-neuron/neuronx-distributed#53).

int8 weights are made here: NxDI quantises by loading Hugging Face's whole model (`save_quantized_state_dict` in
models/application_base.py); here each tensor is read, quantised and written by itself, so that a shard's worth of
memory is enough. The scheme is the same, symmetric and per output row (`quantize_per_channel_symmetric` in
neuronx_distributed): a row's int8 values are its weights over `scale` [out, 1] float32, by which its largest weight is
127. The compiled layers multiply them back to the compute dtype as they are read, so half the bytes pass through the
memory and the arithmetic stays. Embedding and norms stay as they are, and so does the LM head, which the host
multiplies.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from service.engines.neuron.configuration import (
    Chip,
    CompileSettings,
    ConfigurationError,
    MedusaShape,
    neuron_arguments,
)
from service.engines.neuron.manifest import (
    COMPILED_MODEL,
    HOST_WEIGHTS,
    TOKENIZER,
    Manifest,
    ManifestError,
    artifact_sizes,
    base_digest,
    model_digest,
)
from service.engines.neuron.nxdi import Driver, architecture_problems
from service.engines.neuron.packages import SDK
from service.weights.checkpoint import EMBEDDING, LM_HEAD, read_config, read_lm_head, read_named, weight_files
from service.weights.exporting import export_model
from service.weights.head_layouts import PEAKPLAN, read_heads, save_tensors
from service.weights.model_folder import GIB, available_bytes, read_card

# Of a NeuronCore's own half, or of a logical core's quarter, of its chip's memory (AWS Neuron, chips' architecture);
# graphs and the runtime have the rest, as stated for infra/fleet/rules.py too.
CORE_GIB: dict[Chip, float] = {"inf2": 16, "trn1": 16, "trn2": 24}
USABLE = 0.9
# NxDI reads a checkpoint and makes the shards of it beside it; the graph's own part is stated.
COPIES, BESIDE_GIB = 2, 4.0
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")

_LAYERS, _PRODUCT = "model.layers.", "_proj.weight"
_STEPS = 127
_NXDI_HEADS = "medusa_heads.pt"
_TREE = "medusa_tree.json"


def check_memory(model_dir: Path, chip: Chip, cores: int, *, int8: bool = False) -> None:
    """Raise ConfigurationError with the GiB that lack. The default base, which no folder holds, fits every host."""
    base = (model_dir / read_card(model_dir).base).resolve()
    if base.is_dir():
        weights = sum(path.stat().st_size for path in base.iterdir() if path.suffix in _WEIGHT_SUFFIXES)
        if problems := list(_problems(weights, chip, cores, available_bytes(), int8=int8)):
            raise ConfigurationError(problems)


def _problems(weights: int, chip: Chip, cores: int, available: int | None, *, int8: bool) -> Iterator[str]:
    held, room = weights / GIB, USABLE * CORE_GIB[chip] * cores
    # int8 halves the layers and not the embedding, and the LM head stays with the host: half of all of it together.
    loaded, how = (held / 2, "") if int8 else (held, " or halve them (--int8)")
    if loaded > room:
        yield (
            f"{loaded:.1f} GiB of weights on {cores} core(s) of {chip}, which have {room:.1f} for them: "
            f"{loaded - room:.1f} GiB lack. Span more cores (--tensor-parallel){how}"
        )
    needed = COPIES * held + BESIDE_GIB
    free = needed if available is None else available / GIB
    if needed > free:
        yield (
            f"compiling {held:.1f} GiB of weights takes about {needed:.1f} GiB of this host's memory, and "
            f"{free:.1f} are free: {needed - free:.1f} GiB lack. Compile on a larger host; a smaller one of "
            "the same chip loads what was compiled"
        )


def quantise_checkpoint(folder: Path) -> None:
    """Replace the layers' products in a checkpoint's files by int8 weights with their scales, one file at a time."""
    for file in weight_files(folder):
        made: dict[str, Tensor] = {}
        with safe_open(file, framework="pt") as tensors:
            names: list[str] = tensors.keys()  # what safe_open opens is no mapping
            for name in names:
                weight = tensors.get_tensor(name)
                if name.startswith(_LAYERS) and name.endswith(_PRODUCT):
                    made[name], made[name.removesuffix("weight") + "scale"] = quantised(weight)
                else:
                    made[name] = weight.clone()  # of its own: the file that it lies in is replaced
        beside = file.with_name(f".{file.name}")
        save_file(made, beside, metadata={"format": "pt"})
        beside.replace(file)


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values [out, in] and float32 scales [out, 1] of a weight, whose rows may be zero."""
    exact = weight.float()
    scale = (exact.abs().amax(1, keepdim=True) / _STEPS).clamp(min=torch.finfo(torch.float32).eps)
    return (exact / scale).round().clamp(-128, 127).to(torch.int8), scale


def compile_model(
    model_dir: Path,
    cache_dir: Path,
    output: Path,
    settings: CompileSettings,
    packages: Mapping[str, str],
    driver: Driver,
) -> Manifest:
    """Compile `model_dir` into the empty or new folder `output` and return its manifest.

    Raises ConfigurationError, LayoutError, ModelFolderError, BaseWeightsError or ManifestError with what to do.
    """
    if output.exists() and any(output.iterdir()):
        raise ManifestError(f"{output} is not empty; name a new folder")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".checkpoint-") as scratch:
        checkpoint = export_model(model_dir, cache_dir, PEAKPLAN, Path(scratch) / "checkpoint").folder
        described, int8 = read_config(checkpoint), settings.weights == "int8"
        if problems := [*architecture_problems(described, settings.sequence_length, int8=int8)]:
            raise ConfigurationError(problems)
        arguments = neuron_arguments(medusa_shape(checkpoint), settings)
        torch.save({}, checkpoint / _NXDI_HEADS)  # NxDI wants the file; the heads are multiplied on the host
        save_tensors(read_named(checkpoint, (EMBEDDING, LM_HEAD)), output / HOST_WEIGHTS)
        if int8:
            quantise_checkpoint(checkpoint)
        driver.compile(checkpoint, output, arguments)
        shutil.copy(checkpoint / TOKENIZER, output / TOKENIZER)
    return _write_manifest(model_dir, output, settings, packages, arguments)


def medusa_shape(checkpoint: Path) -> MedusaShape:
    """Return an exported checkpoint's shape. Raises LayoutError for heads whose names or shapes NxDI cannot match."""
    config = read_config(checkpoint)
    heads, tree = checkpoint / PEAKPLAN.file, checkpoint / _TREE
    count = read_heads(heads, read_lm_head(checkpoint, config)).heads.count if heads.is_file() else 0
    choices: list[list[int]] = json.loads(tree.read_text(encoding="utf-8")) if tree.is_file() else []
    return MedusaShape(count, tuple(map(tuple, choices)), config.num_heads, config.num_kv_heads)


def _write_manifest(
    model_dir: Path,
    output: Path,
    settings: CompileSettings,
    packages: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> Manifest:
    files = artifact_sizes(output)
    if COMPILED_MODEL not in files:
        raise ManifestError(f"the compiler left no {COMPILED_MODEL} in {output}: see its own messages above")
    manifest = Manifest(
        model_id=read_card(model_dir).id,
        model=model_digest(model_dir),
        base=base_digest(model_dir),
        chip=settings.chip,
        sdk=SDK,
        packages=dict(packages),
        arguments=dict(arguments),
        files=files,
    )
    manifest.write(output)
    return manifest
