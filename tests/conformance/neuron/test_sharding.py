"""Two ranks of the real NxDI, each with its shard of the weights, add up to the whole model; see test_real_nxdi.py."""

from pathlib import Path

import pytest
import torch
from torch.multiprocessing.spawn import ProcessRaisedException, spawn

from service.engines.neuron.configuration import CompileSettings, ConfigurationError, MedusaShape, neuron_arguments
from tests.conformance.neuron import nxdi_on_cpu
from tests.conformance.neuron import random_models as neuron

pytestmark = pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not())
RANKS = 2


def _decode(rank: int, model: neuron.RandomModel, folder: Path) -> None:
    """Decode as one rank of two, which every sum over ranks joins, and leave the tokens in `folder`."""
    store = torch.distributed.FileStore(str(folder / "store"), RANKS)  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    nxdi_on_cpu.import_nxdi()
    with torch.inference_mode():
        shard = nxdi_on_cpu.cpu_model(model.folder, neuron.neuron_arguments(neuron.TREE))
        tokens, _ = neuron.ours(shard, model, neuron.TREE)
    weights = sum(parameter.numel() for parameter in shard.models[0].model.parameters())
    torch.save((tokens, weights), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_both_ranks_add_up_to_the_whole_model_s_greedy_tokens(tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    model = neuron.random_model(tmp_path / "model", seed=1)
    whole = nxdi_on_cpu.cpu_model(model.folder, neuron.neuron_arguments(neuron.TREE))

    spawn(_decode, args=(model, tmp_path), nprocs=RANKS)  # type: ignore[no-untyped-call]

    for rank in range(RANKS):
        tokens, weights = torch.load(tmp_path / f"{rank}.pt")
        assert tokens == model.greedy
        assert weights < 0.7 * sum(parameter.numel() for parameter in whole.models[0].model.parameters())


@pytest.mark.parametrize("vocabulary", [neuron.VOCABULARY + 1])
def test_a_vocabulary_that_the_ranks_do_not_divide_is_sharded(tmp_path: Path, vocabulary: int) -> None:
    nxdi_on_cpu.import_nxdi()
    model = neuron.random_model(tmp_path / "model", seed=1, vocabulary=vocabulary)

    spawn(_decode, args=(model, tmp_path), nprocs=RANKS)  # type: ignore[no-untyped-call]

    assert [torch.load(tmp_path / f"{rank}.pt")[0] for rank in range(RANKS)] == [model.greedy] * RANKS


def test_key_heads_that_do_not_divide_cannot_be_sharded_as_the_configuration_says(tmp_path: Path) -> None:
    """NxDI copies three key heads to six and then pads them as if they were three still (`gqa.py`, preshard_hook)."""
    model = neuron.random_model(tmp_path / "model", seed=1, attention=(6, 3))

    with pytest.raises(ProcessRaisedException, match="but found"):
        spawn(_decode, args=(model, tmp_path), nprocs=RANKS)  # type: ignore[no-untyped-call]

    shape = MedusaShape(neuron.HEADS, neuron.TREE, attention_heads=6, key_value_heads=3)
    with pytest.raises(ConfigurationError, match="3 key and value heads"):
        neuron_arguments(shape, CompileSettings(tensor_parallel=RANKS, max_prompt_tokens=64, max_new_tokens=48))
