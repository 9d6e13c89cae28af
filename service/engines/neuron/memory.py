"""Whether a model's weights fit this host while it is compiled, and the cores that a replica spans, before minutes are
spent: the kernel kills what takes too much without a word (aws-neuron/neuronx-distributed#53)."""

from collections.abc import Iterator
from pathlib import Path

from service.engines.neuron.configuration import Chip, ConfigurationError
from service.weights.memory import GIB, available_bytes
from service.weights.model_folder import read_card

# Of a NeuronCore's own half, or of a logical core's quarter, of its chip's memory (AWS Neuron, chips' architecture);
# graphs and the runtime have the rest, as stated for infra/fleet/memory_rules.py too.
CORE_GIB: dict[Chip, float] = {"inf2": 16, "trn1": 16, "trn2": 24}
USABLE = 0.9
# NxDI reads a checkpoint and makes the shards of it beside it; the graph's own part is stated.
COPIES, BESIDE_GIB = 2, 4.0
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


def check_memory(model_dir: Path, chip: Chip, cores: int, *, int8: bool = False) -> None:
    """Raise ConfigurationError with the GiB that lack. The default base, which no folder holds, fits every host."""
    base = (model_dir / read_card(model_dir).base).resolve()
    if base.is_dir():
        weights = sum(path.stat().st_size for path in base.iterdir() if path.suffix in _WEIGHTS)
        if problems := list(_problems(weights, chip, cores, available_bytes(), int8=int8)):
            raise ConfigurationError(problems)


def _problems(weights: int, chip: Chip, cores: int, available: int | None, *, int8: bool) -> Iterator[str]:
    held, room = weights / GIB, USABLE * CORE_GIB[chip] * cores
    # int8 halves the layers and not the embedding, and the LM head stays with the host: half of all of it together.
    loaded, how = (held / 2, "") if int8 else (held, " or halve them (--int8)")
    if loaded > room:
        yield (
            f"{loaded:.1f} GiB of weights on {cores} core(s) of {chip}, which have {room:.1f} for them: "
            f"{loaded - room:.1f} GiB lack. Span more cores (--tensor-parallel){how}"
        )
    needed = COPIES * held + BESIDE_GIB
    free = needed if available is None else available / GIB
    if needed > free:
        yield (
            f"compiling {held:.1f} GiB of weights takes about {needed:.1f} GiB of this host's memory, and "
            f"{free:.1f} are free: {needed - free:.1f} GiB lack. Compile on a larger host; a smaller one of "
            "the same chip loads what was compiled"
        )
