"""Sizes of planners to reckon with: the shipped one's base, and the shapes of larger ones that many fine-tune.

The numbers are those of each base's published config.json. A planner of your own counts by its shape alone: what it
reads for a token decides what a plan costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.fleet.model_folder import KNOWN_BASES

GIB = 2**30


@dataclass(frozen=True)
class Planner:
    """A size by the shape of its base. Bytes are in bfloat16, two a parameter, as devices hold them."""

    name: str
    hidden: int
    inner: int
    layers: int
    attention_heads: int
    key_value_heads: int
    vocabulary: int
    head_width: int
    heads: int = 4  # Medusa's
    tied: bool = True  # the LM head is the embedding

    @property
    def layer_bytes(self) -> int:
        """The layers' attention and MLP, all of which each step reads."""
        queries, keys = self.attention_heads * self.head_width, self.key_value_heads * self.head_width
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        return 2 * self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def embedding_bytes(self) -> int:
        """The embedding, which a step reads a few rows of."""
        return 2 * self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All parameters of the base."""
        return (self.layer_bytes + self.embedding_bytes * (1 if self.tied else 2)) // 2

    def cache_bytes(self, positions: int, batch: int = 1) -> int:
        """Return the bytes of keys and values for a batch's positions."""
        return 2 * 2 * self.layers * self.key_value_heads * self.head_width * positions * batch

    def device_bytes(self, positions: int, batch: int = 1) -> int:
        """Return what a replica holds on its cores: layers, embedding, keys and values; our graph has no LM head."""
        return self.layer_bytes + self.embedding_bytes + self.cache_bytes(positions, batch)


def _known(name: str, base: str) -> Planner:
    shape = KNOWN_BASES[base]
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    return Planner(
        name, hidden, shape["intermediate_size"], shape["num_hidden_layers"], heads, shape["num_key_value_heads"],
        shape["vocab_size"], hidden // heads,
    )  # fmt: skip


SHIPPED = _known("135M (SmolLM2, which ships)", "smollm2-135m-instruct")
MISTRAL = Planner("7B (as Mistral 0.2)", 4096, 14336, 32, 32, 8, 32000, 128, tied=False)
PLANNERS = (
    SHIPPED,
    Planner("360M (as SmolLM2)", 960, 2560, 32, 15, 5, 49152, 64),
    Planner("1B (as Llama 3.2)", 2048, 8192, 16, 32, 8, 128256, 64),
    Planner("3B (as Llama 3.2)", 3072, 8192, 28, 24, 8, 128256, 128),
    MISTRAL,
    Planner("8B (as Llama 3.1)", 4096, 14336, 32, 32, 8, 128256, 128, tied=False),
)
