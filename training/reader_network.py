"""The reader's network, to be trained; `service/planner/reader/network.py` runs it, under the same names."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from service.planner.reader.network import DISTANCES, MARKS, MOST_TURNS


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes: of the list of words and of the table of letters, numbers of things to choose from, and widths.

    `ends` has how many scores the whole question has for intent, mode, sources, sort, offers and vertical.
    """

    words: int
    buckets: int
    tags: int
    parts: int
    ends: tuple[int, ...]
    width: int = 192
    word_width: int = 96
    blocks: int = 4
    heads: int = 4
    pools: int = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """B questions of up to T words. Each word is looked up once: `grams` and `starts` as `embedding_bag` has them."""

    unique: Tensor  # [U] numbers in the list
    grams: Tensor
    starts: Tensor  # [U]
    words: Tensor  # [B, T] which of the unique words
    marks: Tensor  # [B, T, M]
    turns: Tensor  # [B, T]
    mask: Tensor  # [B, T] bool


class Block(nn.Module):
    """A convolution over three words, attention over all, and a layer of its own for each word."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.near_norm, self.far_norm, self.own_norm = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.near = nn.Linear(3 * width, 2 * width)
        self.asks = nn.Linear(width, 3 * width)
        self.told = nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.distance = nn.Parameter(torch.zeros(2 * DISTANCES + 1, heads))

    def forward(self, x: Tensor, mask: Tensor, distances: Tensor) -> Tensor:
        drop, seen = self.dropout if self.training else 0.0, mask[..., None]
        y = functional.pad(self.near_norm(x) * seen, (0, 0, 1, 1))
        y = functional.glu(self.near(torch.cat([y[:, :-2], y[:, 1:-1], y[:, 2:]], -1)), -1)
        x = x + functional.dropout(y, drop)
        count, length, width = x.shape
        parts = self.asks(self.far_norm(x)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = self.distance[distances].permute(2, 0, 1)[None] + (~mask).float()[:, None, None] * -1e4
        y = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        x = x + functional.dropout(self.told(y.transpose(1, 2).reshape(count, length, width)), drop)
        return x + functional.dropout(self.outer(functional.silu(self.inner(self.own_norm(x)))), drop)


class ReaderNetwork(nn.Module):
    """Scores each word's tag and part, and what holds for the whole question."""

    def __init__(self, shape: Shape, dropout: float = 0.1, unlisted: float = 0.1) -> None:
        """`unlisted`: the share of words that training shows by their letters alone."""
        super().__init__()
        self.shape, self.dropout, self.unlisted = shape, dropout, unlisted
        width = shape.width
        self.words = nn.Embedding(shape.words + 1, shape.word_width, padding_idx=0)
        self.letters = nn.EmbeddingBag(shape.buckets, shape.word_width, mode="mean")
        self.marks = nn.Embedding(MARKS, width)
        self.turns = nn.Embedding(MOST_TURNS, width)
        self.enter = nn.Linear(shape.word_width, width)
        self.blocks = nn.ModuleList(Block(width, shape.heads, dropout) for _ in range(shape.blocks))
        self.norm = nn.LayerNorm(width)
        self.tags = nn.Linear(width, shape.tags)
        self.parts = nn.Linear(width, shape.parts)
        self.pool = nn.Linear(width, shape.pools)
        self.whole = nn.Linear(shape.pools * width, width)
        self.ends = nn.Linear(width, sum(shape.ends))
        for table in (self.words, self.letters, self.marks, self.turns):
            nn.init.normal_(table.weight, std=0.1 if table in (self.words, self.letters) else 0.02)
        with torch.no_grad():
            self.words.weight[0] = 0

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return scores [B, T, tags], [B, T, parts] and of each end [B, its number]."""
        unique = batch.unique
        if self.training and self.unlisted:
            unique = unique * (torch.rand(len(unique)) >= self.unlisted)
        looked_up = self.words(unique) + self.letters(batch.grams, batch.starts)
        x = self.enter(looked_up)[batch.words] + self.marks(batch.marks).sum(2) + self.turns(batch.turns)
        x = functional.dropout(x, self.dropout, self.training) * batch.mask[..., None]
        length = x.shape[1]
        places = torch.arange(length)
        distances = (places[None] - places[:, None]).clamp(-DISTANCES, DISTANCES) + DISTANCES
        for block in self.blocks:
            x = block(x, batch.mask, distances)
        x = self.norm(x)
        weights = (self.pool(x) + (~batch.mask).float()[..., None] * -1e4).softmax(1)  # [B, T, P]
        pooled = torch.einsum("btp,btw->bpw", weights, x).flatten(1)
        summary = functional.dropout(functional.silu(self.whole(pooled)), self.dropout, self.training)
        return self.tags(x), self.parts(x), list(self.ends(summary).split(self.shape.ends, -1))
