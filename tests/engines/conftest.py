"""What the tests of engines share."""

from pathlib import Path

import pytest

from tests.engines.neuron.fake_compiled import compiled


@pytest.fixture(scope="module")
def artifacts(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("neuron") / "compiled"
    compiled(tiny_model_dir, folder)
    return folder
