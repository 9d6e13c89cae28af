"""Tests of what choosing by worth is measured to be worth."""

import json

import numpy as np
import pytest

from rehearsal.bench.worth import judge, most, table
from service.planner.worth.features import NAMES
from tests.planner.worth.scorers import by_length
from training.worth_bound import Compared


def asked(words: int, *, by_model: bool, by_rule: bool) -> Compared:
    return Compared((words, *(0,) * (len(NAMES) - 1)), by_model, by_rule, by_model != by_rule, work=0.02)


CASES = [asked(3, by_model=True, by_rule=True)] * 60 + [asked(9, by_model=True, by_rule=False)] * 40


def test_a_perfect_scorer_needs_the_model_only_where_it_matters() -> None:
    figures = judge(CASES, by_length(), (0.1, 0.4, 1.0))
    assert (figures["off"][0], figures["rules"][0]) == (1.0, 0.6)
    assert figures["always"]["passed"] == [1.0, 1.0, 1.0]
    assert (figures["always"]["planned_by_rule"], figures["always"]["models_work"]) == (0.6, 0.4)
    tenth, enough, all_of_it = figures["overload"]
    assert (tenth["chance"][0], tenth["worth"][0]) == (0.64, 0.7)
    assert (enough["chance"][0], enough["worth"][0], enough["less_than_all"][0]) == (0.76, 1.0, 0.0)
    assert all_of_it["worth"] == all_of_it["chance"]
    assert 0.1 < enough["more_than_chance"][1] < 0.24 <= enough["more_than_chance"][2]
    assert "| 40% | 0.760 [" in table(figures)
    assert json.loads(json.dumps(figures)) == figures


@pytest.mark.parametrize(("share", "chosen"), [(0.0, []), (0.3, [2]), (0.6, [2, 0]), (1.0, [2, 0, 1])])
def test_work_is_counted_in_seconds_of_the_model(share: float, chosen: list[int]) -> None:
    picked = most(np.array([0.5, 0.1, 0.9]), np.array([3.0, 4.0, 3.0]), share)
    assert set(np.flatnonzero(picked)) == set(chosen)
