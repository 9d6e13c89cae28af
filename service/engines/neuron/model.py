"""The compiled model inside a replica's process: text in, text out, one request at a time. Not run on hardware.

The counterpart of `engines/torch/engine.py`. Nothing is compiled here: artifacts of another model, configuration or SDK
are refused with the difference before the device is touched.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping

from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler
from service.decoding.generation import generate
from service.decoding.interruption import Interruption
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import NO_PROPOSER
from service.decoding.statistics import Generation
from service.decoding.tree import MedusaTree
from service.engines.config import EngineConfig
from service.engines.neuron.configuration import forward_shape
from service.engines.neuron.cores import VISIBLE_CORES, core_count, neuron_cores
from service.engines.neuron.forward import CompiledTarget, OutsideCandidatesError
from service.engines.neuron.manifest import TOKENIZER, check_manifest
from service.engines.neuron.nxdi import NXDI, Driver
from service.engines.neuron.packages import installed_versions
from service.engines.protocol import (
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    RequestRefusedError,
    Strategy,
)
from service.engines.results import generation_result, request_constraint, trace_texts
from service.weights.model_folder import ModelCard, read_card

_log = logging.getLogger(__name__)

STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "medusa")
_WARM_UP_GRAMMAR = r"start: /(.|\n){8,64}/"  # allows any text: the warm-up only proves that the model answers
_WARM_UP_PROMPT = " red shoes"


class NeuronModel:
    """A compiled model with its tokenizer. `refused` counts requests for which no candidate was legal."""

    def __init__(self, card: ModelCard, tokenizer: Tokenizer, target: CompiledTarget, tree: MedusaTree) -> None:
        self.id = card.id
        self.kernel = "neuron"
        self.answered = self.refused = 0
        self._card = card
        self._tokenizer = tokenizer
        self._target = target
        self._medusa = MedusaProposer(target, tree)
        self._compiler = GrammarCompiler(tokenizer.to_str(), card.eos_token_id)

    def watch(self, socket: int) -> None:
        """Do nothing: a compiled forward runs as a whole, in milliseconds, and `cancelled` is called before each."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False) -> GenerationResult:
        """Continue the prompt under the grammar until it is finished, the deadline passes or `cancelled` returns true.

        Raises RequestRefusedError for a prompt that is too long, a grammar that does not compile, a strategy that is
        not compiled, or where none of the device's candidates is legal.
        """
        started = time.monotonic()
        prompt = [self._card.bos_token_id, *self._tokenizer.encode(request.prompt, add_special_tokens=False).ids]
        longest = self._target.shape.max_context_length
        if len(prompt) > longest:
            raise PromptTooLongError.at(len(prompt), longest)
        generation = self._generate(request, prompt, Interruption(cancelled, request.deadline))
        self.answered += 1
        return generation_result(generation, self._tokenizer, time.monotonic() - started)

    def _generate(self, request: GenerationRequest, prompt: list[int], stop: Callable[[], bool]) -> Generation:
        if request.strategy not in STRATEGIES:
            raise RequestRefusedError(f"the compiled model {self.id} cannot decode by {request.strategy}")
        is_medusa = request.strategy == "medusa"
        try:
            return generate(
                self._target,
                self._medusa if is_medusa else NO_PROPOSER,
                prompt,
                request_constraint(self._compiler, request.grammar),
                max_tokens=min(request.max_tokens or self._card.max_tokens, self._card.max_tokens),
                fast_forward=is_medusa or request.fast_forward,
                trace=trace_texts(request, self._tokenizer),
                cancelled=stop,
            )
        except OutsideCandidatesError as error:
            self.refused += 1
            _log.warning("%d of %d requests refused: %s", self.refused, self.refused + self.answered, error)
            raise RequestRefusedError(str(error)) from error


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
    cores = 0 if number is not None else core_count(os.environ.get(VISIBLE_CORES, ""))
    card = read_card(model_dir)
    least = {"max_context_length": config.max_prompt_tokens, "max_new_tokens": card.max_tokens}
    manifest = check_manifest(compiled_dir, model_dir, packages(), least, cores)
    if number is not None:
        os.environ[VISIBLE_CORES] = neuron_cores(number, manifest.arguments["tp_degree"])
    shape = forward_shape(manifest.arguments)
    model = NeuronModel(
        card,
        Tokenizer.from_file(str(compiled_dir / TOKENIZER)),
        CompiledTarget(driver.load(compiled_dir), shape, relocates=manifest.relocates),
        MedusaTree.from_choices(manifest.arguments["medusa_tree"], shape.num_heads),
    )
    _prove(model, config.strategy)
    return model


def _prove(model: NeuronModel, strategy: Strategy) -> None:
    request = GenerationRequest(prompt=_WARM_UP_PROMPT, grammar=_WARM_UP_GRAMMAR, strategy=strategy)
    model.generate(request)
