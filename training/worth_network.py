"""A small network that knows what a forest knows: trees learn from questions, and the network from their answers.

Of some ten thousand questions that were planned both ways, trees that choose their splits by chance (Geurts et al.,
2006, doi:10.1007/s10994-006-6226-1) foresee best which ones the model alone gets right, but they are megabytes. So a
network of one layer learns what they answer for many more questions, whose plans nobody needs to know (Bucila et al.,
2006, doi:10.1145/1150402.1150464), and is all that serves. The same rows give the same network.
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from service.planner.worth.scorer import MOST_DEVIATIONS, Network

TREES, LEAST_IN_A_LEAF, NUMBERS_TRIED = 600, 5, 0.4
UNITS, PASSES = 32, 40
SEED = 7
_CERTAIN = 0.003  # no question is held to be surer than this
_SLOWEST = 1e-3  # deviation of a number that hardly ever changes
_REPEATED = 4  # times that the network sees a question that trees have learnt from
_DIGITS = 4
Rows = Sequence[tuple[int, ...]]
Table = NDArray[np.float64]


def learn(rows: Rows, lost: Sequence[bool], weights: Sequence[float], others: Rows = ()) -> Network:
    """Learn how likely a question is to be `lost` by rule, by its row of numbers; `others` are rows to distil with."""
    table = np.array(rows, dtype=np.float64)
    if len(set(lost)) < 2:  # a model that is never better, or always: nothing tells its questions apart
        return constant(table.shape[1], (sum(lost) + 0.5) / (len(lost) + 1))
    forest = ExtraTreesClassifier(
        TREES, min_samples_leaf=LEAST_IN_A_LEAF, max_features=NUMBERS_TRIED, random_state=SEED, n_jobs=-1
    ).fit(table, np.array(lost), sample_weight=np.array(weights))
    seen = np.vstack(
        [np.repeat(table, _REPEATED, axis=0), np.array(others, dtype=np.float64).reshape(-1, table.shape[1])]
    )
    return distilled(seen, _log_odds(forest.predict_proba(seen)[:, 1]))


def distilled(table: Table, log_odds: Table) -> Network:
    """Return a network that answers each row of a table with these log odds, as nearly as it can."""
    logarithms = np.log1p(table)
    mean, deviation = logarithms.mean(axis=0).round(_DIGITS), (logarithms.std(axis=0) + _SLOWEST).round(_DIGITS)
    inputs = ((logarithms - mean) / deviation).clip(-MOST_DEVIATIONS, MOST_DEVIATIONS)
    learner = MLPRegressor(  # stops after its passes, as it is told; nothing needs it to converge
        hidden_layer_sizes=(UNITS,),
        alpha=1.0,
        learning_rate_init=3e-3,
        batch_size=min(256, len(table)),
        max_iter=PASSES,
        n_iter_no_change=PASSES,
        random_state=SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(inputs, log_odds)
    (hidden, output), (bias, start) = learner.coefs_, learner.intercepts_
    return Network(
        mean=_said(mean),
        deviation=_said(deviation),
        hidden=tuple(_said(unit) for unit in hidden.T),
        bias=_said(bias),
        output=_said(output[:, 0]),
        start=_said(start)[0],
    )


def constant(numbers: int, share: float) -> Network:
    """Return a network that answers every question alike."""
    start = round(math.log(share / (1 - share)), 5)
    return Network(mean=(0.0,) * numbers, deviation=(1.0,) * numbers, hidden=(), bias=(), output=(), start=start)


def _log_odds(share: Table) -> Table:
    kept = share.clip(_CERTAIN, 1 - _CERTAIN)
    odds: Table = np.log(kept / (1 - kept))
    return odds


def _said(values: Table) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)
