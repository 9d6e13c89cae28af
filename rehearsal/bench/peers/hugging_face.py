"""Hugging Face's `generate` as a peer of our decoding, on the same tuned weights."""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from service.engines.protocol import GenerationResult
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.settings import Settings
from service.weights.model_folder import load_model


class HuggingFaceGenerate:
    """`generate` of transformers, greedy, with its own cache; it knows no grammar and stops at the end token."""

    def __init__(self, model_dir: Path, settings: Settings) -> None:
        loaded = load_model(model_dir, settings.cache_dir)
        self._loaded = loaded
        shape = loaded.config
        config = LlamaConfig(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab_size,
            rms_norm_eps=shape.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
            max_position_embeddings=shape.max_position_embeddings,
            tie_word_embeddings=shape.tie_word_embeddings,
        )
        dtype = torch.float32 if settings.dtype == "float32" else torch.bfloat16  # its fastest on a CPU
        self._model: Any = LlamaForCausalLM(config).to(dtype).eval()  # type: ignore[arg-type]  # its stub is wrong
        missing, unexpected = self._model.load_state_dict(loaded.weights, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"weights do not fit transformers' Llama: missing {missing}, unexpected {unexpected}")
        self._model.tie_weights()

    def plan(self, question: Question) -> GenerationResult:
        """Run one generation, tokenising included."""
        started = time.perf_counter()
        encoded = self._loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids
        prompt = torch.tensor([[self._loaded.bos_token_id, *encoded]])
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=self._loaded.max_tokens,
                do_sample=False,
                eos_token_id=self._loaded.eos_token_id,
                pad_token_id=self._loaded.eos_token_id,
            )
        tokens = output[0, prompt.shape[1] :].tolist()
        tokens = [token for token in tokens if token != self._loaded.eos_token_id]
        return GenerationResult(
            text=self._loaded.tokenizer.decode(tokens),
            tokens=tokens,
            stop_reason="finished",
            prompt_tokens=prompt.shape[1],
            plan_tokens=len(tokens),
            forwards=output.shape[1] - prompt.shape[1],
            decisions=len(tokens),
            forced_tokens=0,
            seconds=time.perf_counter() - started,
        )
