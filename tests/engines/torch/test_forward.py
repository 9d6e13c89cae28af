"""Tests of which forward runs: our best kernels, others by name, torch, or a clear error."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from service.decoding.native.library import NativeUnavailableError
from service.decoding.native.targets import targets_here
from service.engines.torch import forward
from service.engines.torch.forward import build_forward
from service.settings.choices import KernelChoice, Precision
from service.weights.model_folder import LoadedModel, ModelFolderError
from tests.decoding.decode import NARROW
from tests.decoding.tiny import random_weights

HERE = [target.kernel for target in targets_here()]


@pytest.fixture
def loaded() -> LoadedModel:
    return cast(LoadedModel, SimpleNamespace(config=NARROW, weights=random_weights(NARROW, seed=1)))


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object) -> None:
        raise NativeUnavailableError("this processor has no AVX2 and FMA")

    monkeypatch.setattr(forward, "load_kernels", unavailable)


@pytest.mark.skipif(not HERE, reason="this processor runs none of our kernels")
def test_the_best_kernels_serve_unless_others_are_named(
    loaded: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        best = build_forward(loaded, "auto", tmp_path)
    assert (best.kernel, best.precision) == (HERE[0], "int8")
    (record,) = caplog.records
    assert vars(record)["kernel"] == HERE[0]
    assert build_forward(loaded, "int8", tmp_path, HERE[-1]).kernel == HERE[-1]


def test_torch_serves_where_it_is_asked_for(loaded: LoadedModel, tmp_path: Path) -> None:
    assert build_forward(loaded, "auto", tmp_path, "torch").kernel == "torch"
    assert build_forward(loaded, "float32", tmp_path).precision == "float32"


@pytest.mark.usefixtures("without_kernels")
def test_without_kernels_torch_serves_and_the_log_says_why(
    loaded: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert build_forward(loaded, "auto", tmp_path).kernel == "torch"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "no AVX2" in warning.getMessage()
    for precision, kernel, setting in (
        ("int8", "auto", "PEAKPLAN_DTYPE=int8"),
        ("auto", "avx2", "PEAKPLAN_KERNEL=avx2"),
    ):
        with pytest.raises(ModelFolderError, match=f"{setting} cannot be had here: this processor has no AVX2"):
            build_forward(loaded, cast(Precision, precision), tmp_path, cast(KernelChoice, kernel))


@pytest.mark.parametrize(("precision", "kernel"), [("float32", "avx2"), ("int8", "torch")])
def test_settings_that_contradict_each_other_are_refused(
    loaded: LoadedModel, tmp_path: Path, precision: Precision, kernel: KernelChoice
) -> None:
    with pytest.raises(ModelFolderError, match="contradict each other"):
        build_forward(loaded, precision, tmp_path, kernel)
