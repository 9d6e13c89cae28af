"""All settings of a training run."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from service.decoding.draft_model import ChainShape
from training.data.mix import Shares
from training.own_plans import OwnPlans
from training.retention import Retention


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """LoRA (Hu et al., 2021) on every linear layer of the frozen base."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0  # dropout on every linear input would cost a third of a CPU step
    epochs: int = 2
    batch_size: int = 32
    learning_rate: float = 6e-4
    warmup_steps: int = 100
    weight_decay: float = 0.0
    max_gradient_norm: float = 1.0
    average_decay: float = 0.998  # exponential moving average of the adapter: what is kept is the average
    checkpoint_every: int = 200


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of fine-tuning: its data and options; it starts from the previous stage's adapter."""

    name: str
    shares: Shares = field(default_factory=Shares)
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    retention: Retention | None = None  # which of an earlier adapter's answers are kept
    own: OwnPlans | None = None  # plans of the adapter that it starts from


@dataclass(frozen=True, slots=True)
class Refinement:
    """One more stage from the mean so far, and the adapters whose mean is kept afterwards, by work folder."""

    stage: Stage
    kept: tuple[str, ...]
    teacher: str = "mean"  # the model whose answers are kept, where the stage retains any: the mean of the runs


# Two epochs do not yet memorise the labelled queries (three, with few new values, came to a span F1 of 0.86 on
# them and 0.65 on dev). Verticals are learnt from ten thousand category names: the second stage sees every one of them.
STAGES = (
    Stage("plans"),
    Stage(
        "verticals",
        Shares(
            labelled=0.35,
            sentence=0.26,
            webshop=60,
            pqa=200,
            bitext=150,
            bitext_keywords=60,
            clinc=200,
            clinc_keywords=60,
            taxonomy=2500,
            categories=10_000,
            retail=400,
            support=250,
            out_of_scope=50,
        ),
        AdapterSettings(epochs=1, learning_rate=4e-4, warmup_steps=40, average_decay=0.995),
    ),
)

# A last stage continues from the mean of the runs, at the rank that is shipped. A mean loses what only some of its
# parts have learnt; here every kind that is rare in queries (verticals, out of scope, prices, slips) comes often.
FINISH = Stage(
    "finish",
    Shares(
        labelled=0.45,
        sentence=0.25,
        price=0.35,
        slip=0.35,
        mention=0.3,
        follow_up=0.2,
        webshop=80,
        pqa=300,
        bitext=250,
        bitext_keywords=150,
        clinc=900,
        clinc_keywords=250,
        taxonomy=5000,
        categories=10_000,
        retail=400,
        support=500,
        out_of_scope=700,
    ),
    AdapterSettings(rank=20, alpha=20, epochs=2, learning_rate=5e-4, warmup_steps=50, average_decay=0.995),
)

# Spans suffer from that: the labelled queries are few and soon memorised. Here the runs' mean teaches them.
RETAIN = Stage(
    "retain",
    replace(FINISH.shares, labelled=0.4, sentence=0.3, price=0.3, slip=0.4, mention=0.5, taxonomy=6000, support=400),
    replace(FINISH.adapter, learning_rate=4e-4, checkpoint_every=100),
    Retention(frozenset({"queryner", "sentence", "follow_up", "negation"})),
)

# What is left is knowledge of the world's products, brands and titles: this stage adds our own names and queries,
# most of them once, and the model's own plans teach it to leave out the facets that it is unsure of.
WORLD = Stage(
    "world",
    replace(
        RETAIN.shares,
        labelled=0.5,
        webshop=120,
        pqa=450,
        bitext=350,
        bitext_keywords=200,
        clinc=1300,
        clinc_keywords=350,
        taxonomy=3000,
        categories=8000,
        products=40_000,
        written=0.9,
        retail=500,
        support=700,
        out_of_scope=900,
    ),
    replace(RETAIN.adapter, epochs=1),
    RETAIN.retention,
    OwnPlans(),
)

# The verticals of categories that no row names: what their attributes say, which siblings share.
ATTRIBUTES = Stage(
    "attributes",
    replace(
        WORLD.shares,
        labelled=0.25,
        webshop=60,
        pqa=220,
        bitext=180,
        bitext_keywords=100,
        clinc=700,
        clinc_keywords=190,
        categories=6000,
        attributes=36_000,
        products=10_000,
        written=0.2,
        retail=200,
        support=330,
        out_of_scope=450,
    ),
    replace(WORLD.adapter, warmup_steps=40),
    WORLD.retention,
    OwnPlans(queries=3000),
)

# A stage that is listed twice has double weight. The last stage alone knows the rare kinds best and spans worst.
REFINEMENTS = (
    Refinement(FINISH, ("finish/adapter-finish", "finish/adapter-finish", "mean", "mean", "run-1/adapter-verticals")),
    Refinement(RETAIN, ("retain/adapter-retain", "retain/adapter-retain", "mean-finish")),
    Refinement(WORLD, ("world/adapter-world", "mean-retain"), teacher="mean-retain"),
    Refinement(
        ATTRIBUTES, ("attributes/adapter-attributes", "mean-world", "world/adapter-world"), teacher="mean-world"
    ),
)


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """Medusa-1 heads (Cai et al., 2024): one residual block each before the LM head of the frozen tuned model."""

    heads: int = 4
    epochs: int = 10
    batch_size: int = 512  # in positions
    learning_rate: float = 1e-3
    loss_decay: float = 0.8  # weight of head i is decay**i, as in the paper
    questions: int = 10_000  # the tuned model's own plans of these are the training data


@dataclass(frozen=True, slots=True)
class PrefillHeadSettings:
    """The prefill head's training; `calibrate` chooses the fastest `p_min`."""

    phrases: int = 64
    features: int = 64
    epochs: int = 6
    batch_size: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    p_min: float = 0.25
    p_mins: tuple[float, ...] = (0.15, 0.2, 0.25, 0.35)


@dataclass(frozen=True, slots=True)
class EarlyExitSettings:
    """The number of layers that draft, and how far they guess; docs/decisions/0016 has the measurements."""

    layers: int = 4
    shape: ChainShape = field(default_factory=ChainShape)
    questions: int = 4000
    tuned_lens: HeadSettings = field(default_factory=lambda: HeadSettings(heads=1, batch_size=128))


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The tree's calibration: grown greedily on dev plans; its drafted part is chosen by the time that plans take."""

    sizes: tuple[int, ...] = (4, 8, 12)
    p_mins: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2)
    questions: int = 300
    measured_share: int = 4  # one of so many questions is timed in every shape


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    data: Path
    cache: Path
    work: Path
    output: Path
    seed: int = 7  # of the first run; each later run takes the next seed
    # The adapters whose mean is kept, by run and stage: independent runs, and stages of different mixes. One that is
    # listed twice weighs twice. The rank of the mean makes 12 MB.
    blended: tuple[tuple[int, str], ...] = (
        (0, "plans"),
        (0, "verticals"),
        (1, "plans"),
        (1, "plans"),
        (1, "verticals"),
    )
    blended_rank: int = 20
    processes: int = 2  # on a CPU; one thread each
    stages: tuple[Stage, ...] = STAGES
    refinements: tuple[Refinement, ...] = REFINEMENTS
    heads: HeadSettings = field(default_factory=HeadSettings)
    prefill_head: PrefillHeadSettings = field(default_factory=PrefillHeadSettings)
    tree: TreeSettings = field(default_factory=TreeSettings)
    early_exit: EarlyExitSettings = field(default_factory=EarlyExitSettings)
