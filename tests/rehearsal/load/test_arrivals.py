from itertools import pairwise
from pathlib import Path
from statistics import mean, variance

import pytest

from rehearsal.load.arrivals import CurveError, constant, poisson, recorded, write_curve


def test_constant_arrivals_are_evenly_spaced() -> None:
    times = constant(50, 2)
    assert len(times) == 100
    assert {round(after - before, 9) for before, after in pairwise(times)} == {0.02}


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    times = poisson(200, 50, seed=3)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert mean(gaps) == pytest.approx(1 / 200, rel=0.05)
    assert variance(gaps) == pytest.approx(1 / 200**2, rel=0.1)
    assert all(0 <= at < 50 for at in times)
    assert times == poisson(200, 50, seed=3) != poisson(200, 50, seed=4)


def test_a_recorded_curve_keeps_its_shape_at_another_rate_and_length(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    write_curve(path, [*constant(100, 10), *(10 + at for at in constant(300, 10))])
    times = recorded(path, rate=400, seconds=40)
    assert len(times) == pytest.approx(16_000, rel=0.05)
    early = sum(at < 20 for at in times)
    assert (len(times) - early) / early == pytest.approx(3, rel=0.1)
    assert times == sorted(times)
    assert times[-1] < 40


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "second,requests\n", "second,requests\n0,x\n", "second,requests\n0,0\n"]
)
def test_a_curve_that_is_none_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CurveError, match=r"curve\.csv"):
        recorded(path, 1, 1)
    with pytest.raises(CurveError, match="nowhere"):
        recorded(tmp_path / "nowhere", 1, 1)
