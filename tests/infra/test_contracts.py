"""Values duplicated in `infra` and `service`, which may not import each other, agree."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.fleet.instances import catalogue
from infra.fleet.model_folder import KNOWN_BASES, read_model_folder
from infra.fleet.parts import Model
from infra.fleet.rules import MEDUSA_RANKS
from infra.fleet.settings import FleetSettings
from service.engines.neuron import configuration
from service.engines.neuron.configuration import CompileSettings, ConfigurationError, neuron_arguments
from service.planner.reader.reading import Reader
from service.settings import Settings
from service.settings.choices import Routing
from tests.infra.fleet.fleets import dev_with
from tests.readers import bounded_model

CHAIN = [[0], [0, 0], [0, 0, 0]]


def test_nxdi_s_fixed_numbers_are_the_same() -> None:
    assert catalogue().tensor_parallel == configuration.TENSOR_PARALLEL
    assert configuration.CANDIDATES == MEDUSA_RANKS


def test_the_work_that_the_reader_leaves_is_what_its_bound_says(tmp_path: Path) -> None:
    folder = bounded_model(tmp_path / "model", 0.3)
    bound = Reader.load(folder).choices.bound
    assert bound is not None
    assert read_model_folder(folder)["work_by_choice"] == bound.work < 1
    assert get_args(Model.model_fields["routing"].annotation) == get_args(Routing)


def fleet_takes(model: dict[str, Any]) -> bool:
    """Whether a fleet of one chip family may run this model."""
    changes = {f"model.{name}": value for name, value in model.items()}
    groups = [{"instance_type": "inf2.xlarge", "minimum": 3, "maximum": 12}]
    few = {"traffic.plans_per_minute": 300}  # which a replica over both cores carries, too
    try:
        FleetSettings.model_validate(dev_with({"groups": groups} | few | changes))
    except ValidationError:
        return False
    return True


def service_takes(model: dict[str, Any]) -> bool:
    """Whether the service would compile it for the same chip."""
    described: Any = SimpleNamespace(
        vocab_size=model["vocabulary"],
        num_heads=model["heads"],
        tree=tuple(map(tuple, model["tree"])),
        attention_heads=model["attention_heads"],
        key_value_heads=model["key_value_heads"],
    )
    settings = CompileSettings(
        tensor_parallel=model["tensor_parallel"],
        max_prompt_tokens=model["max_prompt_tokens"],
        max_new_tokens=model["max_plan_tokens"],
        sequence_length=model["sequence_length"],
        speculation_length=model["speculation_length"],
        context_buckets=tuple(model["context_buckets"]),
        batch_size=model["batch_size"],
        graph=model["graph"],
    )
    try:
        neuron_arguments(described, settings)
    except ConfigurationError:
        return False
    return True


@given(
    st.fixed_dictionaries(
        {
            "vocabulary": st.sampled_from([49152, 49153]),
            "heads": st.integers(2, 4),
            "attention_heads": st.just(12),
            "key_value_heads": st.sampled_from([3, 4, 12]),
            "tree": st.sampled_from([CHAIN, [[0], [1], [0, 9]], [[0], [10]], [[1, 0]], []]),
            "tensor_parallel": st.sampled_from([1, 2]),
            "max_prompt_tokens": st.sampled_from([4, 380, 400]),
            "max_plan_tokens": st.just(96),
            "sequence_length": st.sampled_from([0]) | st.integers(480, 512),
            "speculation_length": st.sampled_from([0, 4, 5, 64]),
            "context_buckets": st.sampled_from([[], [32, 380], [64, 400]]),
            "batch_size": st.sampled_from([1, 8]),
            "graph": st.sampled_from(["tree", "chain"]),
        }
    )
)
def test_a_fleet_takes_exactly_the_models_that_the_service_compiles(model: dict[str, Any]) -> None:
    assert fleet_takes(model) == service_takes(model)


@pytest.mark.parametrize("base", KNOWN_BASES)
def test_a_known_base_has_the_shape_that_the_service_reads(base: str) -> None:
    made = sorted(Settings().cache_dir.glob(f"{base}-*/config.json"))
    if not made:
        pytest.skip(f"the base weights are not in {Settings().cache_dir}: any start of the service puts them there")
    assert json.loads(made[-1].read_text(encoding="utf-8")).items() >= KNOWN_BASES[base].items()
