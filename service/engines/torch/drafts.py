"""The draft model of the strategy "draft": a smaller model if one is configured, else the model's EAGLE-3 head, else
its first layers."""

from dataclasses import replace
from pathlib import Path

from service.decoding.draft_model import ChainShape, DraftModel, SmallerModel
from service.decoding.eagle import EagleLayer, EagleModel
from service.decoding.early_exit import EarlyExitModel
from service.decoding.target import CausalLM
from service.engines.torch.forward import build_forward, kept_dtype
from service.settings.engines import EngineConfig
from service.weights.eagle_head import FOLDER, read_eagle_head
from service.weights.head_weights import LayoutError
from service.weights.model_folder import LoadedModel, ModelFolderError, load_early_exit, load_model


def own_draft(loaded: LoadedModel, forward: CausalLM, config: EngineConfig) -> DraftModel | None:
    """Return the draft that the model folder holds; None where it has none. Raises ModelFolderError."""
    if (config.model_dir / FOLDER).is_dir():
        return eagle_model(loaded, forward, config)
    return early_exit_model(config.model_dir, forward)


def eagle_model(loaded: LoadedModel, forward: CausalLM, config: EngineConfig) -> DraftModel:
    """Return the model's EAGLE-3 head as its draft, for the longest prompt and plan. Raises ModelFolderError."""
    folder = config.model_dir / FOLDER
    positions = config.max_prompt_tokens + loaded.max_tokens
    try:
        head = read_eagle_head(folder, loaded.config)
        layer = EagleLayer(head, forward)
    except (LayoutError, ValueError) as error:
        raise ModelFolderError(f"The EAGLE-3 head in {folder} cannot be used: {error}") from error
    if head.config.longest_sequence < positions:
        raise ModelFolderError(
            f"the EAGLE-3 head in {folder} reads {head.config.longest_sequence} positions, and {positions} are wanted: "
            "lower PEAKPLAN_MAX_PROMPT_TOKENS"
        )
    return EagleModel(forward, layer, layer.new_cache(positions), ChainShape())


def early_exit_model(model_dir: Path, forward: CausalLM) -> DraftModel | None:
    """Return the model's own first layers as its draft; None where it has no exit. Raises ModelFolderError."""
    early_exit = load_early_exit(model_dir)
    if early_exit is None:
        return None
    tuned_lens = early_exit.tuned_lens
    try:
        fitting = EarlyExitModel(forward, early_exit)
        return replace(
            fitting, early_exit=replace(early_exit, tuned_lens=tuned_lens and tuned_lens.with_product(forward.linear))
        )
    except ValueError as error:
        raise ModelFolderError(f"early_exit.json in {model_dir} does not fit its model: {error}") from error


def smaller_model(loaded: LoadedModel, forward: CausalLM, config: EngineConfig) -> DraftModel:
    """Load `config.draft_model_dir` for the longest prompt and plan of `loaded`. Raises ModelFolderError."""
    assert config.draft_model_dir is not None
    folder, positions = config.draft_model_dir, config.max_prompt_tokens + loaded.max_tokens
    smaller = load_model(folder, config.cache_dir, kept_dtype(config.dtype))
    if smaller.tokenizer.get_vocab() != loaded.tokenizer.get_vocab():
        raise ModelFolderError(
            f"PEAKPLAN_DRAFT_MODEL_DIR={folder} has other tokens than model {loaded.id!r}: a draft needs the same ones"
        )
    if smaller.config.longest_sequence < positions:
        raise ModelFolderError(
            f"PEAKPLAN_DRAFT_MODEL_DIR={folder} reads {smaller.config.longest_sequence} positions, "
            f"and {positions} are wanted: lower PEAKPLAN_MAX_PROMPT_TOKENS or name another draft"
        )
    model = build_forward(smaller, config.dtype, config.cache_dir, config.kernel)
    return SmallerModel(forward, model, model.new_cache(positions), ChainShape())
