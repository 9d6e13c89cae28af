"""Traces: read with their bins' width, scaled by their peak minute, refused by name and line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rehearsal.load.arrivals import CurveError
from rehearsal.twin.curves import DAY, at_hand, read_curve


def written(folder: Path, rows: str, name: str = "trace.csv") -> str:
    path = folder / name
    content = f"second,requests\n{rows}"
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return str(path)


@pytest.mark.parametrize("name", ["minutes.csv", "minutes.csv.gz"])
def test_bins_of_a_minute_are_arrivals_a_second_scaled_by_the_peak_minute(tmp_path: Path, name: str) -> None:
    rows = "".join(f"{60 * minute},{count}\n" for minute, count in enumerate([600, 600, 1200, 2400, 2400, 2400, 600]))
    curve = read_curve(written(tmp_path, rows, name))
    assert (curve.name, curve.bin_seconds, curve.seconds) == ("minutes", 60, 420)
    assert curve.relative[0] == pytest.approx(0.25)
    assert curve.relative[270] == pytest.approx(1.0)
    assert curve.relative.max() == pytest.approx(1.0)


def test_bins_of_a_second_keep_their_minutes_and_lose_what_poisson_explains(tmp_path: Path) -> None:
    """Five requests a second, scaled to thousands, must not vary by 45% because five do."""
    counts = np.random.default_rng(1).poisson(5, 1200)
    curve = read_curve(written(tmp_path, "".join(f"{second},{count}\n" for second, count in enumerate(counts))))
    assert curve.bin_seconds == 1
    assert np.std(curve.relative) / np.mean(curve.relative) < 0.1
    bursts = np.where(np.arange(1200) % 30 < 2, 100, 3)
    bursty = read_curve(written(tmp_path, "".join(f"{second},{count}\n" for second, count in enumerate(bursts))))
    assert np.std(bursty.relative) / np.mean(bursty.relative) > 1.5, "bursts beyond Poisson stay"
    assert (curve.note, bursty.note) == (
        "",
        "Its fullest second has 10.3 times what a second of its fullest minute has.",
    )


def test_of_several_days_the_fullest_is_taken(tmp_path: Path) -> None:
    minutes = np.concatenate([np.full(1440, 100), np.full(1440, 300), np.full(1440, 100)])
    minutes[2200] = 900
    curve = read_curve(written(tmp_path, "".join(f"{60 * index},{count}\n" for index, count in enumerate(minutes))))
    assert curve.seconds == DAY
    assert curve.relative.max() > 0.99
    assert "3.0 days" in curve.note


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("0,5\n60,5\n180,5\n240,5\n", r"line 4: second 180 leaves a hole after 60, in bins of 60 s"),
        ("0,5\n60,5\n60,5\n120,5\n", r"line 4: second 60 does not come after 60"),
        ("0,5\n60,-1\n120,5\n", r"line 3: -1 requests; a count is 0 or more"),
        ("0,5\n60,nan\n120,5\n", r"line 3: nan requests"),
        ("0,5\n60,many\n", r"line 3 is not second,requests: '60,many'"),
        ("0,0\n60,0\n", "holds no arrivals"),
        ("", "holds no arrivals"),
        ("0,5\n60,5\n120,5\n", "lasts 180 s only; a rehearsal needs five minutes"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(CurveError, match=said) as raised:
        read_curve(written(tmp_path, rows))
    assert "trace.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("time,count\n0,1\n")
    with pytest.raises(CurveError, match="the first line must be second,requests"):
        read_curve(str(tmp_path / "other.csv"))
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8b\x08no")
    with pytest.raises(CurveError, match="cannot be read"):
        read_curve(str(tmp_path / "broken.csv.gz"))
    with pytest.raises(CurveError, match="nowhere: no such trace"):
        read_curve("nowhere", tmp_path)


def test_a_clone_without_recordings_rehearses_a_stated_day(tmp_path: Path) -> None:
    name = at_hand("world-cup-98-jun30", tmp_path)
    curve = read_curve(name, tmp_path)
    assert (curve.name, curve.seconds, curve.bin_seconds, float(curve.relative.max())) == ("stated-day", DAY, 60, 1.0)
    assert "not recorded" in curve.note
    assert curve.relative[21 * 3600] / curve.relative[20 * 3600] == pytest.approx(3.9, rel=0.01), "as steep as recorded"
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "mine.csv.gz").touch()
    assert at_hand("mine", tmp_path) == "mine"
