"""What drafts for a loaded model under the strategy "draft": a smaller model if one is named, else its first layers."""

from dataclasses import replace

from service.decoding.early_exit import LayeredModel, SelfDraft
from service.decoding.smaller_model import SmallerDraft
from service.decoding.speculation import ChainShape, DraftModel
from service.engines.config import EngineConfig
from service.engines.torch.forward import build_forward, kept_dtype
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model


def self_draft(loaded: LoadedModel, forward: LayeredModel) -> DraftModel | None:
    """The model's own first layers; None where its folder names no exit. Raises ModelFolderError."""
    if loaded.early_exit is None:
        return None
    tuned_lens = loaded.early_exit.tuned_lens
    try:
        fitting = SelfDraft(forward, loaded.early_exit)
        return replace(
            fitting,
            early_exit=replace(loaded.early_exit, tuned_lens=tuned_lens and tuned_lens.with_product(forward.linear)),
        )
    except ValueError as error:
        raise ModelFolderError(f"early_exit.json of model {loaded.id!r} does not fit it: {error}") from error


def smaller_draft(loaded: LoadedModel, forward: LayeredModel, config: EngineConfig) -> DraftModel:
    """The model in `config.draft_model_dir`, for the longest prompt and plan of `loaded`. Raises ModelFolderError."""
    assert config.draft_model_dir is not None
    folder, positions = config.draft_model_dir, config.max_prompt_tokens + loaded.max_tokens
    smaller = load_model(folder, config.cache_dir, kept_dtype(config.dtype))
    if smaller.tokenizer.get_vocab() != loaded.tokenizer.get_vocab():
        raise ModelFolderError(
            f"PEAKPLAN_DRAFT_MODEL_DIR={folder} has other tokens than model {loaded.id!r}: a draft needs the same ones"
        )
    if smaller.longest_sequence < positions:
        raise ModelFolderError(
            f"PEAKPLAN_DRAFT_MODEL_DIR={folder} reads {smaller.longest_sequence} positions, "
            f"and {positions} are wanted: lower PEAKPLAN_MAX_PROMPT_TOKENS or name another draft"
        )
    model = build_forward(smaller, config.dtype, config.cache_dir)
    return SmallerDraft(forward, model, model.new_cache(positions), ChainShape())
