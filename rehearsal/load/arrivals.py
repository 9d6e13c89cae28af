"""Arrival times of requests, in seconds from the start, decided before the run.

Nothing that the service does can delay the next request, which makes the load open-loop.
"""

import csv
import random
from collections.abc import Sequence
from itertools import accumulate, takewhile
from pathlib import Path

COLUMNS = ("second", "requests")


class CurveError(ValueError):
    """Raised for a file of recorded arrivals that cannot be read; says where."""


def constant(rate: float, seconds: float) -> list[float]:
    """Return evenly spaced arrivals, `rate` per second."""
    return [number / rate for number in range(int(rate * seconds))]


def poisson(rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Return the arrivals of independent shoppers: exponential gaps with mean 1/`rate`."""
    rng = random.Random(seed)
    gaps = accumulate(rng.expovariate(rate) for _ in range(int(rate * seconds * 2 + 100)))
    return list(takewhile(lambda at: at < seconds, gaps))


def recorded(path: Path, rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Return arrivals that follow a recorded curve, stretched to `seconds` and scaled to a mean of `rate`.

    The file is CSV with the columns second,requests: how many came in from that second on. Within a second, and after
    scaling, arrivals are Poisson. A result of this program records such a curve. Raises CurveError.
    """
    curve = _read(path)
    span, mean = curve[-1][0] + 1 - curve[0][0], sum(count for _, count in curve) / (curve[-1][0] + 1 - curve[0][0])
    factor = seconds / span
    rng = random.Random(seed)
    arrivals: list[float] = []
    for second, count in curve:
        start, wanted = (second - curve[0][0]) * factor, rate * count / mean
        at = start + (rng.expovariate(wanted) if wanted else factor)
        while at < start + factor:
            arrivals.append(at)
            at += rng.expovariate(wanted)
    return arrivals


def write_curve(path: Path, arrivals: Sequence[float]) -> None:
    """Write arrivals as a curve that `recorded` reads."""
    counts = [0] * (int(max(arrivals, default=0)) + 1)
    for at in arrivals:
        counts[int(at)] += 1
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(enumerate(counts))


def _read(path: Path) -> list[tuple[int, float]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise CurveError(f"{path}: the first line must be {','.join(COLUMNS)}")
            curve = [(int(row["second"]), float(row["requests"])) for row in reader]
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise CurveError(f"{path}: {error}") from error
    except ValueError as error:
        raise error if isinstance(error, CurveError) else CurveError(f"{path}: {error}") from error
    if not curve or sum(count for _, count in curve) <= 0 or any(count < 0 for _, count in curve):
        raise CurveError(f"{path}: holds no arrivals")
    return sorted(curve)
