"""Arrival times of requests, in seconds from the start, decided before the run.

Nothing that the service does can delay the next request, which makes the load open-loop.
"""

import csv
import gzip
import io
import random
import zlib
from collections.abc import Sequence
from itertools import accumulate, takewhile
from pathlib import Path

COLUMNS = ("second", "requests")


class CurveError(ValueError):
    """Raised for a file of recorded arrivals that cannot be used; names the file, the line and what is wrong there."""


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
    moments, counts = read_rows(path)
    span = moments[-1] + 1 - moments[0]
    factor, mean = seconds / span, sum(counts) / span
    rng = random.Random(seed)
    arrivals: list[float] = []
    for second, count in zip(moments, counts, strict=True):
        start, wanted = (second - moments[0]) * factor, rate * count / mean
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


def read_rows(path: Path) -> tuple[list[int], list[float]]:
    """Return the seconds and the counts of a CSV file of arrivals, gzipped or not. Raises CurveError."""
    seconds, counts = list[int](), list[float]()
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        with io.StringIO(content.decode(), newline="") as file:
            reader = csv.reader(file)
            if tuple(next(reader, ())) != COLUMNS:
                raise CurveError(f"{path}: the first line must be {','.join(COLUMNS)}")
            for line, row in enumerate(reader, start=2):
                second, count = _row(path, line, row)
                seconds.append(second)
                counts.append(count)
    except (OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise CurveError(f"{path}: cannot be read: {error}") from error
    if not sum(counts):
        raise CurveError(f"{path}: holds no arrivals")
    return seconds, counts


def _row(path: Path, line: int, row: list[str]) -> tuple[int, float]:
    try:
        second, count = int(row[0]), float(row[1])
    except (ValueError, IndexError):
        raise CurveError(f"{path}: line {line} is not second,requests: {','.join(row)!r}") from None
    if not 0 <= count < 1e12:
        raise CurveError(f"{path}: line {line}: {row[1]} requests; a count is 0 or more")
    return second, count
