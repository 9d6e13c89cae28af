"""CTranslate2 as a peer, and the tuned weights in its format. Runs in the peers' environment."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rehearsal.bench.peers.files import Floats, read_weights, token_names

_FEW_TOKENS = 64


class CTranslate2:
    """CTranslate2 in int8, which has whole generations and whole forwards but no step over a cache in its interface."""

    note = "its forward by rows has no cached context (its interface has none); its plans are decoded without a grammar"

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {ctranslate2.__version__}"
        self._config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        self._tokens = token_names(checkpoint, self._config)
        self._generators = {}
        for head in (False, True):
            folder = checkpoint / f"ctranslate2{'-head' if head else ''}"
            if not (folder / "model.bin").is_file():
                self._write(checkpoint, folder, head)
            self._generators[head] = ctranslate2.Generator(
                str(folder), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
            )

    def reset(self) -> None:
        """Do nothing, as there is no cache."""

    def forward(self, tokens: list[int]) -> None:
        names = [self._tokens[token % _FEW_TOKENS] for token in tokens]
        np.array(self._generators[False].forward_batch([names]))

    def logits(self, tokens: list[int]) -> Floats:
        names = [self._tokens[token] for token in tokens]
        found: Floats = np.array(self._generators[True].forward_batch([names]))[0, -1]
        return found

    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Decode greedily up to the end token, without a grammar."""
        (result,) = self._generators[True].generate_batch(
            [[self._tokens[token] for token in prompt]],
            max_length=max_tokens,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=self._tokens[self._config["eos_token_id"]],
        )
        found: list[int] = result.sequences_ids[0]
        return found

    def _write(self, checkpoint: Path, folder: Path, head: bool) -> None:
        """Write the model; without a head, the vocabulary is cut, because the interface always computes logits."""
        weights = read_weights(checkpoint)
        tokens = self._tokens
        if not head:
            tokens = tokens[:_FEW_TOKENS]
            weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:_FEW_TOKENS]
            if "lm_head.weight" in weights:
                weights["lm_head.weight"] = weights["lm_head.weight"][:_FEW_TOKENS]
        write_ctranslate2(weights, self._config, tokens, folder)


def write_ctranslate2(weights: dict[str, Floats], config: dict[str, Any], tokens: list[str], folder: Path) -> None:
    """Write Hugging Face weights as a CTranslate2 int8 model, laid out as by its own Llama converter."""
    from ctranslate2 import specs

    layers = config["num_hidden_layers"]
    spec = specs.TransformerDecoderModelSpec.from_config(
        layers,
        config["num_attention_heads"],
        activation=specs.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"],
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    decoder.projection.weight = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    decoder.layer_norm.gamma = weights["model.norm.weight"]
    for index, layer in enumerate(decoder.layer):
        at = f"model.layers.{index}"
        layer.self_attention.layer_norm.gamma = weights[f"{at}.input_layernorm.weight"]
        layer.self_attention.linear[0].weight = np.concatenate(
            [weights[f"{at}.self_attn.{part}_proj.weight"] for part in "qkv"]
        )
        layer.self_attention.linear[1].weight = weights[f"{at}.self_attn.o_proj.weight"]
        layer.ffn.layer_norm.gamma = weights[f"{at}.post_attention_layernorm.weight"]
        layer.ffn.linear_0.weight = weights[f"{at}.mlp.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = weights[f"{at}.mlp.up_proj.weight"]
        layer.ffn.linear_1.weight = weights[f"{at}.mlp.down_proj.weight"]
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.config.bos_token, spec.config.eos_token = tokens[config["bos_token_id"]], tokens[config["eos_token_id"]]
    spec.config.unk_token = tokens[0]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
