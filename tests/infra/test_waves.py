"""A fleet is deployed cell after cell, and stops where something hurts."""

import sys

import pytest

from infra.fleet.settings import FLEETS, FleetSettings
from infra.waves import command, main, run, synthesis, waves

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
DEPLOY = ["cdk", "--no-notices", "deploy"]


def test_every_stack_is_in_one_wave_and_the_first_cell_bakes_alone_and_longest() -> None:
    order = waves(PRIME_DAY)
    stacks = [stack for wave in order for stack in wave.stacks]
    cells = [f"Cell-{number}" for number in range(1, 7)]
    assert stacks == ["Network", "Image", *cells, "Edge", "Observability"]
    first, *rest = [wave for wave in order if wave.cell]
    assert first.stacks == ("Cell-1",)
    assert all(first.bake_minutes > wave.bake_minutes > 0 for wave in rest)


def test_a_cell_is_deployed_under_its_marker() -> None:
    line = command(waves(PRIME_DAY)[1], PRIME_DAY, DEPLOY)
    assert line[1:] == [
        *("-m", "infra.deploying", "--fleet", "prime-day", "--cell", "cell-1", "--region", "us-east-1"),
        *("--bake", "15", "--", "cdk", "--no-notices", "deploy", "--exclusively", "Cell-1"),
    ]


def test_a_dev_fleet_may_bake_for_as_long_as_somebody_likes() -> None:
    cells = [wave for wave in waves(PRIME_DAY, (2, 0.5)) if wave.cell]
    assert [wave.bake_minutes for wave in cells] == [2, *[0.5] * 5]


def test_a_fleet_is_synthesised_by_this_python_into_one_folder() -> None:
    line = synthesis("my/fleet.yaml", ["cdk", "--no-notices"], "/tmp/assembly")
    assert line[:4] == ["cdk", "--no-notices", "synth", "--quiet"]
    assert line[4:6] == ["--app", f"{sys.executable} app.py"]
    assert line[6:] == ["--context", "fleet=my/fleet.yaml", "--output", "/tmp/assembly"]


def test_harm_in_the_first_cell_stops_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    called: list[list[str]] = []

    def call(line: list[str]) -> int:
        called.append(line)
        return int("Cell-1" in line)

    assert run(waves(PRIME_DAY), PRIME_DAY, DEPLOY, call) == 1
    assert [line[-1] for line in called] == ["Image", "Cell-1"]
    assert "not touched: Cell-2, Cell-3, Cell-4, Cell-5, Cell-6, Edge, Observability" in capsys.readouterr().err


def test_what_cannot_be_used_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"]) == 2
    assert "Fleets that ship" in capsys.readouterr().err
    assert main(["dev", "no-such-cdk"]) == 127
    assert "no such command" in capsys.readouterr().err
