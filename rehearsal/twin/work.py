"""How long plans take, as the fleet file states it or as measured, each marked so, and which questions are asked."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from infra.fleet import sizing
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from rehearsal.load.mix import DISTINCT, ZIPF

Array = np.ndarray[Any, np.dtype[Any]]
QUANTILES = 4096
FIGURE, WORTHS = Path("docs/figures/serving.json"), Path("docs/figures/routing.json")
_Z_99 = NormalDist().inv_cdf(0.99)


class ServiceTimesError(ValueError):
    """Raised where measured service times are asked for and there are none. The message says what to run."""


@dataclass(frozen=True)
class Work:
    """Service seconds by group, band of question lengths and quantile, with where they come from."""

    times: Array  # [G, B, QUANTILES]
    band_share: Array  # [B]: cumulated
    band_length: Array  # [B]: characters of the prompt
    is_measured: bool
    source: str
    worths: Array  # [B, W]: what the model's plans are worth, at evenly spaced quantiles


def log_normal(mean: float, p99: float) -> Array:
    """Return QUANTILES evenly spaced quantiles of the log-normal distribution with this mean and 99th percentile.

    Raises:
        ServiceTimesError: no such distribution has so far a tail.
    """
    ratio = math.log(p99 / mean)  # = z s - s^2 / 2
    if ratio > _Z_99**2 / 2:
        raise ServiceTimesError(f"no log-normal distribution has a mean of {mean:g} s and a p99 of {p99:g} s")
    sigma = _Z_99 - math.sqrt(_Z_99**2 - 2 * ratio)
    normal = NormalDist()
    points = np.array([normal.inv_cdf((index + 0.5) / QUANTILES) for index in range(QUANTILES)])
    times: Array = np.exp(math.log(mean) - sigma**2 / 2 + sigma * points)
    times *= mean / times.mean()  # what the table's ends cut off
    return times


def stated(settings: FleetSettings) -> Work:
    """Return the fleet file's own service times: log-normal, whatever the question's length."""
    times = [sizing.service_time(settings, group) for group in settings.groups]
    tables = [log_normal(time.mean_ms / 1000, time.p99_ms / 1000) for time in times]
    sources = "; ".join(dict.fromkeys(" ".join(time.source.split()) for time in times))
    measured = all(time.is_measured for time in times)
    return Work(np.array(tables)[:, None, :], np.ones(1), np.full(1, 30.0), measured, sources, worths(1))


def measured(settings: FleetSettings, figure: Path = FIGURE) -> Work:
    """Return the service times that `peakplan bench load` measured on its machine, by question length, for every group.

    Raises:
        ServiceTimesError: the figure has none.
    """
    try:
        found = json.loads(figure.read_text(encoding="utf-8"))
        bands = found["service_times"]["bands"]
    except (OSError, ValueError, KeyError) as error:
        raise ServiceTimesError(
            f"{figure} holds no service times: run `python -m rehearsal.load.figures --only service_times`, or leave "
            "TIMES=measured out"
        ) from error
    even = (np.arange(QUANTILES) + 0.5) / QUANTILES
    tables = []
    for band in bands:
        known = np.array(band["quantiles_ms"]) / 1000
        tables.append(np.interp(even, (np.arange(len(known)) + 0.5) / len(known), known))
    shares = np.cumsum([band["share"] for band in bands])
    lengths = np.array([band["mean_characters"] for band in bands], float)
    plans = f"{found['service_times']['requests']} plans on {found['machine']['processor']}"
    source = f"peakplan bench load, {plans}, not on the fleet's instances"
    return Work(
        np.array([tables] * len(settings.groups)), shares / shares[-1], lengths, True, source, worths(len(bands))
    )


def worths(bands: int, figure: Path = WORTHS) -> Array:
    """Return what the model's plans are worth by band of question lengths, by `rehearsal.bench.routing`: [B, W].

    Where the figure is missing every question is worth the same.
    """
    if not figure.is_file():
        return np.zeros((bands, 1))
    found = np.array(json.loads(figure.read_text(encoding="utf-8"))["worths"])
    return found if len(found) == bands else np.tile(np.sort(found, axis=None), (bands, 1))


def questions(distinct: int = DISTINCT, exponent: float = ZIPF) -> Array:
    """Return the cumulated shares of questions by rank: Zipf's law, as rehearsal/load/mix.py draws them."""
    weights = (np.arange(distinct) + 1.0) ** -exponent
    shares: Array = np.cumsum(weights) / weights.sum()
    return shares


def group_share(settings: FleetSettings, group: Group) -> float:
    """Return the share of a cell's hosts that are of this group, by the groups' maxima; none of one that stands in."""
    if group.stands_in:
        return 0.0
    return group.maximum / sum(each.maximum for each in settings.groups if not each.stands_in)
