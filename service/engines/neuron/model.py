"""The compiled model inside a replica's process. Not run on hardware.

The counterpart of `engines/torch_engine.py`. Nothing is compiled here: artifacts of another model, configuration or SDK
are refused with the difference before the device is touched.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.decoding.kind_head import KindHead
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads
from service.decoding.native.library import NativeUnavailableError, load_kernels
from service.decoding.native_llama import NativeLinear, NativeLmHead
from service.decoding.proposer import NO_PROPOSER, ChainProposer, Proposer
from service.decoding.target import Target
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import forward_shape
from service.engines.neuron.forward import CompiledTarget
from service.engines.neuron.manifest import HOST_WEIGHTS, TOKENIZER, Manifest, check_manifest
from service.engines.neuron.nxdi import NXDI, Driver
from service.engines.neuron.packages import VISIBLE_CORES, core_count, installed_versions, neuron_cores
from service.engines.protocol import GenerationRequest, RequestRefusedError
from service.engines.text_model import Drafting, TextModel
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig
from service.weights.checkpoint import EMBEDDING, LM_HEAD
from service.weights.model_folder import (
    ModelCard,
    load_heads,
    load_kind_head,
    read_card,
)
from service.weights.tokenizer_file import read_tokenizer

STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "medusa")
# Rows are compiled in, and one without a guess costs what one with a guess does.
LEAST_LIKELY = 0.03
_WARM_UP_GRAMMAR = r"start: /(.|\n){8,64}/"  # allows any text: the warm-up only proves that the model answers
_WARM_UP_PROMPT = " red shoes"


class NeuronModel(TextModel):
    """A compiled model with its tokenizer; its slots are the sequences of the graph."""

    kernel = "neuron"

    def __init__(
        self,
        card: ModelCard,
        tokenizer: Tokenizer,
        targets: list[CompiledTarget],
        drafting: Drafting,
        kind_head: KindHead | None = None,
    ) -> None:
        limits = (targets[0].shape.max_context_length, card.max_tokens)
        super().__init__(card.id, tokenizer, (card.bos_token_id, card.eos_token_id), limits, drafting, kind_head)
        self._targets = targets

    @property
    def slots(self) -> int:
        return len(self._targets)

    def _parts(self, request: GenerationRequest, prompt: list[int], slot: int) -> tuple[Target, Proposer]:
        if request.strategy not in STRATEGIES:
            raise RequestRefusedError(f"the compiled model {self.id} cannot decode by {request.strategy}")
        target = self._targets[slot]
        if request.strategy != "medusa":
            return target, NO_PROPOSER
        proposer = self._medusa(target, request, prompt)
        return target, ChainProposer(proposer) if target.shape.is_chain else proposer


def load(
    config: EngineConfig,
    number: int | None = None,
    driver: Driver = NXDI,
    packages: Callable[[], Mapping[str, str]] = installed_versions,
) -> NeuronModel:
    """Load compiled artifacts and let them generate once, so that a replica that reports ready has been tested.

    Replica `number` of a host takes its own NeuronCores; without a number those in NEURON_RT_VISIBLE_CORES are its own.
    The runtime reads them once, when it is first used. Raises NeuronUnavailableError, ManifestError, ModelFolderError
    or ConfigurationError with what to do.
    """
    model_dir, compiled_dir = config.model_dir, config.neuron.compiled_dir
    assert compiled_dir is not None, "the settings ask for it"
    torch.set_num_threads(1)
    cores = 0 if number is not None else core_count(os.environ.get(VISIBLE_CORES, ""))
    card = read_card(model_dir)
    least = {
        "max_context_length": config.max_prompt_tokens,
        "max_new_tokens": card.max_tokens,
        "batch_size": config.batch_size,
    }
    manifest = check_manifest(compiled_dir, model_dir, packages(), least, cores)
    if number is not None:
        os.environ[VISIBLE_CORES] = neuron_cores(number, manifest.arguments["tp_degree"])
    model = _model(config, card, manifest, compiled_dir, driver)
    request = GenerationRequest(prompt=_WARM_UP_PROMPT, grammar=_WARM_UP_GRAMMAR, strategy=config.strategy)
    model.generate(request)
    return model


def _model(config: EngineConfig, card: ModelCard, manifest: Manifest, compiled: Path, driver: Driver) -> NeuronModel:
    """Put together the device's part of the model and the host's: embedding, heads and LM head."""
    shape = forward_shape(manifest.arguments)
    tokenizer = read_tokenizer(compiled / TOKENIZER)
    weights = load_file(compiled / HOST_WEIGHTS)
    embedding = weights[EMBEDDING]
    lm_head, heads = _products(config, weights.get(LM_HEAD, embedding), load_heads(config.model_dir))
    loaded = driver.load(compiled)
    targets = [CompiledTarget(loaded, shape, lm_head, heads, sequence=sequence) for sequence in range(shape.batch_size)]
    drafting = Drafting(
        MedusaTree.from_choices(manifest.arguments["medusa_tree"], shape.num_heads), LEAST_LIKELY, copies=True
    )
    kind_head = load_kind_head(config.model_dir, embedding.shape[1]) if config.kinds else None
    return NeuronModel(card, tokenizer, targets, drafting, kind_head)


def _products(
    config: EngineConfig, lm_head: torch.Tensor, heads: MedusaHeads | None
) -> tuple[LmHead, MedusaHeads | None]:
    """Return LM head and heads with our kernels where this host runs them."""
    try:
        library = load_kernels(config.kernel).functions
    except NativeUnavailableError:
        return LmHead(lm_head), heads
    return NativeLmHead(lm_head, library), heads and heads.with_products(lambda weight: NativeLinear(weight, library))
