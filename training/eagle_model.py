"""The EAGLE-3 head as it is trained: `service/decoding/eagle.py` for whole batches, with gradients."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from service.decoding.llama import rotary_table
from service.decoding.llama_config import LlamaConfig


class _Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(2 * hidden, config.num_heads * width, bias=False)
        self.k_proj = nn.Linear(2 * hidden, config.num_kv_heads * width, bias=False)
        self.v_proj = nn.Linear(2 * hidden, config.num_kv_heads * width, bias=False)
        self.o_proj = nn.Linear(config.num_heads * width, hidden, bias=False)


class _Mlp(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return down


class _Midlayer(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(config), _Mlp(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class TrainableEagle(nn.Module):
    """The head, its parameters under the names of its file; the embedding and the LM head's rows stay the target's."""

    rotary: Tensor
    embedding: Tensor
    rows: Tensor

    def __init__(self, config: LlamaConfig, embedding: Tensor, rows: Tensor) -> None:
        """Take the target's `embedding` [V, H] and the LM head's `rows` [draft vocabulary, H]."""
        super().__init__()
        self.config = config
        self.fc = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = _Midlayer(config)
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("rotary", rotary_table(config, torch.device("cpu")), persistent=False)
        self.register_buffer("embedding", embedding.float(), persistent=False)
        self.register_buffer("rows", rows.float(), persistent=False)

    def forward(self, tokens: Tensor, states: Tensor, steps: int) -> list[Tensor]:
        """Return the states [B, T, H] of each step's entries of `tokens` [B, T], each after the feature's position."""
        features, after = self.fc(states), functional.embedding(tokens, self.embedding)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        outputs: list[Tensor] = []
        for step in range(steps):
            outputs.append(self._entries(after, features, keys, values, step))
            features = outputs[-1].roll(1, 1)  # the entry of a position reads the output of the one before
        return outputs

    def logits(self, states: Tensor) -> Tensor:
        return functional.linear(self.norm(states), self.rows)

    def _entries(self, after: Tensor, features: Tensor, keys: list[Tensor], values: list[Tensor], step: int) -> Tensor:
        layer = self.midlayer
        entry = torch.cat((layer.input_layernorm(after), layer.hidden_norm(features)), -1)
        hidden = features + self._attended(entry, keys, values, step)
        out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out

    def _attended(self, entry: Tensor, keys: list[Tensor], values: list[Tensor], step: int) -> Tensor:
        """Attend to the true entries up to `step` before each one, and to one drafted entry of each step since."""
        batch, length, _ = entry.shape
        attention, width = self.midlayer.self_attn, self.config.head_dim
        query, key, value = (
            product(entry).view(batch, length, -1, width).transpose(1, 2)
            for product in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        groups = self.config.num_heads // self.config.num_kv_heads
        query = self._turned(query)
        keys.append(self._turned(key).repeat_interleave(groups, 1))
        values.append(value.repeat_interleave(groups, 1))
        unseen = torch.ones((length, length), dtype=torch.bool, device=entry.device).triu(1 - step)
        scores = [(query @ keys[0].transpose(2, 3)).masked_fill(unseen, float("-inf"))]
        since = range(1, step + 1)
        scores += [(query * keys[each].roll(step - each, 2)).sum(-1, keepdim=True) for each in since]
        shares = (torch.cat(scores, -1) * width**-0.5).softmax(-1)
        attended = shares[..., :length] @ values[0]
        for each in since:
            attended = attended + shares[..., length + each - 1, None] * values[each].roll(step - each, 2)
        projected: Tensor = attention.o_proj(attended.transpose(1, 2).reshape(batch, length, -1))
        return projected

    def _turned(self, states: Tensor) -> Tensor:
        cosine, sine = self.rotary[: states.shape[2]].unbind(1)
        return states * cosine + states.roll(self.config.head_dim // 2, -1) * sine
