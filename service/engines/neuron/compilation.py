"""`peakplan compile`: compile a model folder into artifacts that an instance loads in seconds. Not run on hardware.

It takes minutes, once, on any machine with the pinned SDK's compiler; never at boot: `loading.py` only reads what this
wrote.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from service.engines.neuron.architectures import architecture_problems
from service.engines.neuron.configuration import CompileSettings, ConfigurationError, MedusaShape, neuron_arguments
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
from service.engines.neuron.nxdi import Driver
from service.engines.neuron.packages import SDK
from service.engines.neuron.quantising import quantise_checkpoint
from service.weights.checkpoint import EMBEDDING, LM_HEAD, read_config, read_lm_head, read_named
from service.weights.exporting import export_model
from service.weights.head_layouts import PEAKPLAN, read_heads, save_tensors
from service.weights.model_folder import read_card

_NXDI_HEADS = "medusa_heads.pt"
_TREE = "medusa_tree.json"


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
