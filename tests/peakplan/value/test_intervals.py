"""Verdicts hold although somebody looks all the time: fewer runs here than `rehearsal.value` makes."""

import json

import numpy as np
import pytest

from peakplan.value.intervals import Arm, boundary, faded, lift, mismatch, shoppers_needed
from rehearsal.value import FIGURE, asked, simulate


def test_continuous_looking_finds_what_is_there_and_little_else() -> None:
    rng, traffic = np.random.default_rng(7), asked(0.02)
    nothing = simulate(0.0, 200, traffic, rng)
    assert nothing["better"] + nothing["worse"] <= 0.05
    assert nothing["a_verdict_on_any_measure"] <= 0.05, "looking at all measures is looking five times as often"
    gain = simulate(0.02, 200, traffic, rng)
    assert gain["better"] >= 0.8
    harm = simulate(-0.05, 200, traffic, rng)
    assert harm["worse"] == 1.0
    assert harm["median_shoppers_to_the_verdict"] < traffic / 4
    assert min(each["covered_at_every_look"] for each in (nothing, gain, harm)) >= 0.93


def test_one_look_s_interval_would_be_wrong_under_looking() -> None:
    """The simulation can tell: with 1.96 standard errors it finds what is not there."""
    rng = np.random.default_rng(7)
    steps = rng.normal(size=(400, 1000)).cumsum(axis=1) / np.sqrt(np.arange(1, 1001))
    looks = np.arange(1, 1001)
    assert (np.abs(steps[:, 9:]) > 1.96).any(axis=1).mean() > 0.3
    assert (np.abs(steps) > boundary(looks, planned=1000)).any(axis=1).mean() <= 0.05


def test_the_figure_says_what_the_issue_asks_for() -> None:
    figure = json.loads(FIGURE.read_text("utf-8"))
    assert figure["no_effect"]["runs"] == 1000
    assert figure["no_effect"]["a_verdict_on_any_measure"] <= 0.05
    assert figure["no_effect"]["all_measures_covered"] >= 0.95
    assert figure["gain"]["better"] >= 0.8
    assert min(figure[name]["covered_at_every_look"] for name in ("no_effect", "gain", "harm")) >= 0.93


def test_what_is_needed_is_what_makes_the_interval_narrow_enough() -> None:
    arm = Arm(1.0, 0.05, 0.05)
    needed = shoppers_needed(arm, 0.1)
    assert shoppers_needed(arm, 0.05) > 3 * needed
    half = needed / 2
    control, ours = Arm(half, 0.05 * half, 0.05 * half), Arm(half, 0.055 * half, 0.055 * half)
    assert lift(control, ours).low > 0
    assert shoppers_needed(Arm(10.0, 0.0, 0.0), 0.1) == float("inf")


def test_a_mismatch_is_no_chance_and_a_lift_that_fades_is_told() -> None:
    assert mismatch([50_000, 50_300], [1, 1]) < 1
    assert mismatch([50_000, 52_000], [1, 1]) > 100
    assert mismatch([90_000, 10_050], [9, 1]) < 1

    def pair(rate: float) -> tuple[Arm, Arm]:
        return Arm(1e5, 5e3, 5e3), Arm(1e5, 1e5 * rate, 1e5 * rate)

    assert faded(pair(0.08), pair(0.05)) == -1
    assert faded(pair(0.05), pair(0.08)) == 1
    assert faded(pair(0.05), pair(0.0501)) == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("control", "arm", "verdict"), [(400, 99, 0), (99, 400, 0), (400, 100, -1), (100, 400, 1)])
def test_a_verdict_waits_until_a_hundred_of_each_arm_have_chosen(control: int, arm: int, verdict: int) -> None:
    found = lift(Arm(10_000, control, control), Arm(10_000, arm, arm))
    assert found.verdict == verdict


def test_no_shoppers_are_no_verdict_and_no_warning() -> None:
    found = lift(Arm(0.0, 0.0, 0.0), Arm(0.0, 0.0, 0.0))
    assert int(found.verdict) == 0
