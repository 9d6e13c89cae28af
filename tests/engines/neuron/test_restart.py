"""A Neuron replica that is killed comes back on its own cores, with what was compiled, and with the same tokens."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.engines.neuron.cores import VISIBLE_CORES
from service.engines.neuron.forward import CompiledModel
from service.engines.neuron.model import NeuronModel, load
from service.engines.protocol import GenerationRequest
from service.engines.worker.messages import ModelSource
from service.engines.worker.replica import ReplicaEngine
from service.settings.engines import EngineConfig, NeuronSettings
from tests.engines.neuron.fake_driver import ANY_TEXT, PACKAGES, FakeDriver, compiled

pytestmark = pytest.mark.anyio


class WritingDriver(FakeDriver):
    """A driver that writes down on which cores it loads, and cannot compile."""

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        raise AssertionError(f"nothing compiles at a start: {checkpoint}, {output}, {arguments}")

    def load(self, compiled: Path) -> CompiledModel:
        with (compiled.parent / "cores").open("a", encoding="ascii") as cores:
            cores.write(f"{os.environ[VISIBLE_CORES]}\n")
        return super().load(compiled)


def load_replica(model_dir: str, compiled_dir: str, number: int) -> NeuronModel:
    """Load as the service does, in the replica's process."""
    folder = Path(compiled_dir)
    config = EngineConfig(
        model_dir=Path(model_dir),
        cache_dir=folder,
        engine="neuron",
        max_prompt_tokens=40,
        neuron=NeuronSettings(compiled_dir=folder),
    )
    return load(config, number, driver=WritingDriver(), packages=lambda: PACKAGES)


async def test_a_killed_replica_comes_back_on_its_cores_with_the_same_tokens(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    compiled(tiny_model_dir, tmp_path / "compiled")
    arguments = {"model_dir": str(tiny_model_dir), "compiled_dir": str(tmp_path / "compiled"), "number": 1}
    engine = ReplicaEngine(ModelSource(f"{__name__}:load_replica", arguments))
    request = GenerationRequest(prompt=" red shoes", grammar=ANY_TEXT)
    await engine.start()
    before = await engine.generate(request)

    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert await engine.failed() == "its process ended by SIGKILL"
    await engine.start()

    assert (await engine.generate(request)).tokens == before.tokens
    await engine.close()
    assert (tmp_path / "cores").read_text(encoding="ascii") == "1\n1\n"
