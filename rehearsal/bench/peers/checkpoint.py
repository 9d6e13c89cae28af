"""The tuned weights (base and adapter merged) in the files that peers read: safetensors, and GGUF for llama.cpp.

    FOLDER/config.json tokenizer.json    the base's
    FOLDER/model.safetensors             float16, Hugging Face's names; norms in float32
    FOLDER/q8_0.gguf q4_0.gguf           the same, quantised by the `gguf` package as llama.cpp's own converter does
    FOLDER/float16.gguf                  for converters of other engines that read GGUF

All are made once for the weights of a model, after which FOLDER is named, and kept until those of another are made.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import save_file

from rehearsal.bench.peers.engines import token_names
from service.weights.model_folder import base_folder, load_model, read_card

LAYOUT_VERSION = 1  # raise it whenever the files change, so that old ones are made anew
_TYPES = {
    "q8_0.gguf": gguf.GGMLQuantizationType.Q8_0,
    "q4_0.gguf": gguf.GGMLQuantizationType.Q4_0,
    "float16.gguf": gguf.GGMLQuantizationType.F16,
}
_FILE_TYPES = {
    gguf.GGMLQuantizationType.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
    gguf.GGMLQuantizationType.Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0,
    gguf.GGMLQuantizationType.F16: gguf.LlamaFileType.MOSTLY_F16,
}
_PRE_TOKENIZER = "smollm"  # llama.cpp's name for digits one by one, then GPT-2's words
_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def prepare(model_dir: Path, cache_dir: Path, progress: Callable[[str], None] = print) -> Path:
    """Return the folder of a model's files for peers, made on the first call (1.1 GB for 135M weights).

    Raises ModelFolderError or BaseWeightsError; ValueError for a model that GGUF files of ours cannot describe.
    """
    folder = cache_dir / "peers" / f"{_weights_version(model_dir, cache_dir)}-v{LAYOUT_VERSION}"
    if folder.is_dir():
        return folder
    progress(f"Writing the tuned weights for the peers into {folder} (once)…")
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        _write_checkpoint(model_dir, cache_dir, made)
        for name, kind in _TYPES.items():
            write_gguf(made, made / name, kind)
        made.rename(folder)
    return folder


def _weights_version(model_dir: Path, cache_dir: Path) -> str:
    """Return a short name of base and adapter, without heads and other drafting parts, which peers do not use."""
    card = read_card(model_dir)
    base = base_folder(card, model_dir, cache_dir)
    digest = hashlib.sha256(card.model_dump_json().encode())
    for path in (base / "config.json", *sorted(model_dir.glob("adapter_*"))):
        digest.update(path.read_bytes())
    for path in sorted(base.glob("*.safetensors")):  # large, and seldom changed in place
        digest.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


def _write_checkpoint(model_dir: Path, cache_dir: Path, folder: Path) -> None:
    card = read_card(model_dir)
    base = base_folder(card, model_dir, cache_dir)
    weights = load_model(model_dir, cache_dir, torch.float16).weights  # the source of our int8 weights
    folder.mkdir()
    kept = {name: weight.float() if weight.ndim == 1 else weight for name, weight in weights.items()}
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    if config.get("tie_word_embeddings"):
        kept.pop("lm_head.weight", None)
    save_file({name: weight.contiguous() for name, weight in kept.items()}, folder / "model.safetensors")
    config |= {"bos_token_id": card.bos_token_id, "eos_token_id": card.eos_token_id}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    shutil.copy(base / "tokenizer.json", folder / "tokenizer.json")


def write_gguf(checkpoint: Path, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """Write a Hugging Face folder as one GGUF file with matrices of `kind`; a tied head is left out.

    The embedding stays in 8 bits where matrices have 4, as llama.cpp's own quantiser leaves it for a tied head.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if config.get("rope_scaling"):
        raise ValueError(f"{checkpoint} has rope_scaling {config['rope_scaling']}, which is not written here")
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, config, kind)
    _add_tokenizer(writer, checkpoint, config)
    for name, values in gguf_tensors(load_file(checkpoint / "model.safetensors"), config):
        if values.ndim == 1:
            writer.add_tensor(name, values)
            continue
        is_embedding = name in ("token_embd.weight", "output.weight")
        chosen = gguf.GGMLQuantizationType.Q8_0 if is_embedding and kind == gguf.GGMLQuantizationType.Q4_0 else kind
        writer.add_tensor(name, gguf.quants.quantize(values, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_tensors(weights: dict[str, NDArray[Any]], config: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield GGUF's name and float32 values of every weight, queries and keys laid out for GGUF's rotary positions."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        values = weight.astype(np.float32)
        if module in _WHOLE:
            yield f"{_WHOLE[module]}.weight", values
            continue
        index, _, part = module.removeprefix("model.layers.").partition(".")
        named = _PARTS[part]
        yield f"blk.{index}.{named}.weight", _interleave_halves(values, heads[named]) if named in heads else values


def _interleave_halves(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Interleave the two halves of each head, which Hugging Face keeps apart for its rotary positions."""
    rows, columns = values.shape
    return values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _describe(writer: gguf.GGUFWriter, config: dict[str, Any], kind: gguf.GGMLQuantizationType) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name("peakplan")
    writer.add_file_type(_FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, config: dict[str, Any]) -> None:
    described = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["id"] for token in described["added_tokens"]}
    tokens = token_names(checkpoint, config)
    kinds = [gguf.TokenType.CONTROL if index in special else gguf.TokenType.NORMAL for index in range(len(tokens))]
    merges = described["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
