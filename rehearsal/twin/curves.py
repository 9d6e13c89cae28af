"""Recorded traffic as arrivals a second: a curve scaled by its peak, flashes on top, noise below the minute.

A trace is CSV, gzipped or not, with the columns second,requests: arrivals in the bin that begins then. The bins' width
is read from the file itself, and a file with a hole in it is refused.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rehearsal.bench.questions import DATA
from rehearsal.load.arrivals import CurveError, read_rows

Array = np.ndarray[Any, np.dtype[Any]]
DAY = 24 * 3600
# Standard deviation of the load from second to second as a share of it, beyond Poisson: shared data, traces/README.md
# (variance over mean of one-second counts around their minute, 1.49, on a public stream).
NOISE = 0.08
# The day that is rehearsed where no recording is: stated, not recorded. Its peak opens within an hour, as steeply as
# the fullest day of the recordings reaches its own (3.9 times within 60 minutes: shared data, traces/README.md).
STATED_DAY = "stated-day"
_BY_HOUR = {0: 0.35, 3: 0.2, 7: 0.22, 9: 0.4, 12: 0.5, 14: 0.42, 20: 0.256, 21: 1.0, 22: 1.0, 23: 0.6, 24: 0.35}
_BURST = 1.5  # from which bursts within a minute are said to be there
_PEAK_SECONDS = 300  # the peak's place is where this long a mean is highest


@dataclass(frozen=True)
class Curve:
    """Traffic over time, as a share of its peak minute. `relative` has one value a second."""

    name: str
    relative: Array
    bin_seconds: int
    note: str = ""

    @property
    def seconds(self) -> int:
        """The curve's length."""
        return len(self.relative)

    @property
    def peak_second(self) -> int:
        """The middle of the fullest five minutes."""
        span = min(_PEAK_SECONDS, self.seconds)
        means = np.convolve(self.relative, np.full(span, 1 / span), mode="valid")
        return int(np.argmax(means)) + span // 2

    def noise(self, seed: int) -> Array:
        """Return a factor for each second: gamma distributed with mean 1; 1 where the recording has seconds itself."""
        if self.bin_seconds < 10:
            return np.ones(self.seconds)
        return np.random.default_rng([seed, 1]).gamma(NOISE**-2, NOISE**2, self.seconds)


def traces(data: Path = DATA) -> dict[str, Path]:
    """Return the traces that are there, by name."""
    return {path.name.partition(".csv")[0]: path for path in sorted((data / "traces").glob("*.csv*"))}


def stated_day() -> Curve:
    """Return the day that is not recorded: quiet by night, busy at noon, and full within the hour before 21:00."""
    hours = (np.arange(DAY) + 0.5) / 3600
    relative: Array = np.interp(hours, list(_BY_HOUR), list(_BY_HOUR.values()))
    return Curve(STATED_DAY, relative, 60, "not recorded but stated; name your own traffic with TRAFFIC=my.csv.")


def at_hand(trace: str, data: Path = DATA) -> str:
    """Return the name of the trace, or the stated day's where a clone has no recordings."""
    return trace if trace in traces(data) else STATED_DAY


def read_curve(trace: str, data: Path = DATA) -> Curve:
    """Return the trace of this name, or in this file; of one longer than a day, its fullest day.

    Raises:
        CurveError: there is no such trace, or it has holes, negative counts, no arrivals, is too short, or no trace.
    """
    if trace == STATED_DAY:
        return stated_day()
    path = Path(trace) if Path(trace).suffix in (".csv", ".gz") else traces(data).get(trace)
    if path is None or not path.is_file():
        known = ", ".join([STATED_DAY, *traces(data)])
        raise CurveError(f"{trace}: no such trace; name a CSV file of second,requests, or one of these: {known}")
    seconds, found = read_rows(path)
    counts = np.array(found)
    width = _width(path, seconds)
    relative = _by_second(counts, width)
    if len(relative) < _PEAK_SECONDS:
        raise CurveError(f"{path}: lasts {len(relative)} s only; a rehearsal needs five minutes at least")
    note = ""
    if len(relative) > DAY:
        begins = _fullest_day(relative)
        note = f"{len(relative) / DAY:.1f} days long: its fullest 24 hours, from second {begins} on."
        relative = relative[begins : begins + DAY]
    peak = float(np.convolve(relative, np.full(60, 1 / 60), mode="valid").max())
    if (burst := float(relative.max() / peak)) > _BURST:
        note += f" Its fullest second has {burst:.1f} times what a second of its fullest minute has."
    return Curve(path.name.partition(".csv")[0], relative / peak, width, note.strip())


def steady(seconds: int, name: str = "steady") -> Curve:
    """Return a curve that is always at its peak."""
    return Curve(name, np.ones(seconds), 60)


def flash(seconds: int, at: float, times: float, within: float = 60, holds: float = 900, falls: float = 600) -> Array:
    """Return a factor for each second: 1, growing linearly to `times` from `at` on, held, and falling again."""
    moments = np.arange(seconds) + 0.5
    factor: Array = np.interp(
        moments, [at, at + within, at + within + holds, at + within + holds + falls], [1, times, times, 1]
    )
    return factor


def _width(path: Path, seconds: list[int]) -> int:
    """Return the bins' width. Raises CurveError for a hole, or a time that does not come after the one before."""
    if len(seconds) < 2:
        raise CurveError(f"{path}: one line says nothing of the bins' width")
    steps = [after - before for before, after in itertools.pairwise(seconds)]
    width = Counter(steps).most_common(1)[0][0]
    for line, step in enumerate(steps, start=3):
        if step != width or width < 1:
            what = "does not come after" if step < 1 else "leaves a hole after"
            raise CurveError(
                f"{path}: line {line}: second {seconds[line - 2]} {what} {seconds[line - 3]}, in bins of {width} s"
            )
    return width


def _by_second(counts: Array, width: int) -> Array:
    """Return arrivals a second: linear between the middles of wide bins; of one-second bins, without Poisson's share.

    A recording of a few requests a second varies mostly because it is small. Scaled to thousands a second that must not
    grow with it, so each second is drawn towards its minute by the share of its variance that Poisson explains
    (James and Stein's estimator).
    """
    if width >= 10:
        middles = (np.arange(len(counts)) + 0.5) * width
        rates: Array = np.interp(np.arange(len(counts) * width) + 0.5, middles, counts / width)
        return rates
    minutes = np.repeat(counts, width) / width
    span = min(60, len(minutes))
    around = np.convolve(
        np.pad(minutes, (span // 2, span - 1 - span // 2), mode="edge"), np.full(span, 1 / span), "valid"
    )
    dispersion = float(np.var(minutes - around) / max(around.mean(), 1e-9)) * width
    kept = max(0.0, 1 - 1 / dispersion) if dispersion > 1 else 0.0
    return np.maximum(0.0, around + kept * (minutes - around))


def _fullest_day(relative: Array) -> int:
    """Return the second at which the 24 hours begin whose middle hours hold the highest five minutes."""
    peak = Curve("", relative, 60).peak_second
    return int(np.clip(peak - DAY // 2, 0, len(relative) - DAY))
