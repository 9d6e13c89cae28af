"""All settings of the training recipe."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from service.settings.choices import SHIPPED_MODEL
from training.data.mix import Mix, Shares, Source

_SCALED = ("written", "conversations")  # shares of our own material
_LEAST_EPOCHS = 2  # of the reader, so that a rehearsal goes from one to the next


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """LoRA (Hu et al., 2021) on every linear layer of the frozen base; rank 20 makes 12 MB."""

    rank: int = 20
    alpha: int = 40
    dropout: float = 0.0  # dropout on every linear input would cost a third of a CPU step
    epochs: int = 3
    batch_tokens: int = 2048
    learning_rate: float = 8e-4
    warmup_steps: int = 60
    weight_decay: float = 0.0
    max_gradient_norm: float = 1.0
    average_decay: float = 0.997  # exponential moving average of the adapter: what is kept is the average
    checkpoint_every: int = 100  # steps


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """Medusa-1 heads (Cai et al., 2024): one residual block each before the LM head of the frozen tuned model."""

    heads: int = 4
    epochs: int = 10
    batch_size: int = 512  # in positions
    learning_rate: float = 1e-3
    loss_decay: float = 0.8  # weight of head i is decay**i, as in the paper
    questions: int = 5000  # the tuned model's own plans of these are the training data


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The small reader of `service/planner/reader`: epochs of the mix, and what it sees of words."""

    epochs: int = 10
    least_seen: int = 6  # how often a word must be seen to be listed
    most_words: int = 17_000
    buckets: int = 12_288  # of runs of letters
    batch_words: int = 4096
    learning_rate: float = 2e-3
    warmup_steps: int = 300
    least_probability: float = 0.5  # of a filter's words, chosen on the dev writers


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The tree's calibration: grown greedily on dev plans; its drafted part is chosen by the time that plans take."""

    sizes: tuple[int, ...] = (4, 8, 12)
    p_mins: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2)
    questions: int = 300
    measured_share: int = 4  # one of so many questions is timed in every shape


@dataclass(frozen=True, slots=True)
class KindHeadSettings:
    """How many texts the kind head learns from at most: needs, those that name things, those about no product."""

    needs: int = 12_000
    named: int = 4000
    turned_away: int = 2500

    @property
    def texts(self) -> int:
        return self.needs + self.named + self.turned_away

    def scaled(self, scale: float) -> "KindHeadSettings":
        """Return the same for this share of the texts."""
        return KindHeadSettings(*(max(1, round(scale * each)) for each in (self.needs, self.named, self.turned_away)))


@dataclass(frozen=True, slots=True)
class WorthSettings:
    """How many questions bound what the reader may plan (`worth.py`), at most."""

    conversations: int = 1500  # turns that writers labelled
    asked: int = 500  # whose intent alone is known


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    data: Path
    cache: Path
    work: Path
    output: Path
    vocabulary: Path = SHIPPED_MODEL  # a vocabulary.json, or a folder with one
    seed: int = 7
    processes: int = 2  # on a CPU; one thread each
    shares: Shares = field(default_factory=Shares)
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    heads: HeadSettings = field(default_factory=HeadSettings)
    reader: ReaderSettings = field(default_factory=ReaderSettings)
    tree: TreeSettings = field(default_factory=TreeSettings)
    kind_head: KindHeadSettings = field(default_factory=KindHeadSettings)
    worth: WorthSettings = field(default_factory=WorthSettings)
    base: Path | None = None  # a checkpoint's or a model's folder; None: the shipped one
    start: Path | None = None  # a folder with an adapter of this rank to go on from; None: a new one
    examples: float = 1.0  # the share of the whole recipe's
    reader_start: Path | None = None  # a folder with a reader to go on from; None: a new one
    source: Callable[[], Source] | None = None  # picklable; None: the mix of the data folder

    @property
    def description(self) -> str:
        """All that decides what a run computes, for it to be told from another."""
        return repr(replace(self, cache=Path(), work=Path(), output=Path(), processes=0)) + "\n"

    def open_source(self) -> Source:
        """Read what examples are drawn from."""
        return self.source() if self.source else Mix(self.data, self.shares)

    def scaled(self, scale: float) -> "TrainingSettings":
        """Return the same recipe with this share of the examples, and all that goes with their number: a rehearsal."""

        def part(count: int) -> int:
            return max(1, round(scale * count))

        shares = {
            share.name: part(count) if isinstance(count, int) else count * (scale if share.name in _SCALED else 1)
            for share in fields(Shares)
            for count in (getattr(self.shares, share.name),)
        }
        adapter = self.adapter
        return replace(
            self,
            shares=Shares(**shares),
            adapter=replace(
                adapter,
                warmup_steps=part(adapter.warmup_steps),
                checkpoint_every=part(adapter.checkpoint_every),
            ),
            reader=replace(self.reader, epochs=max(_LEAST_EPOCHS, part(self.reader.epochs))),
            heads=replace(self.heads, questions=part(self.heads.questions)),
            kind_head=self.kind_head.scaled(scale),
            worth=replace(
                self.worth,
                conversations=part(self.worth.conversations),
                asked=part(self.worth.asked),
            ),
            tree=replace(self.tree, questions=part(self.tree.questions)),
            examples=self.examples * scale,
        )
