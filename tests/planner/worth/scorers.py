"""A scorer that tests can reckon with."""

from math import log1p

from service.planner.worth.features import NAMES
from service.planner.worth.scorer import Bound, Network, Scorer, Worth

BOUND = 0.5
SHORT_ODDS, LONG_ODDS = -2.0, 2.0


def by_length() -> Scorer:
    """Return one to which questions of more than four words matter, all of them alike."""
    steep = (LONG_ODDS - SHORT_ODDS) / (log1p(5) - log1p(4))
    network = Network(
        mean=(0.0,),
        deviation=(1.0,),
        hidden=((steep,), (steep,)),
        bias=(-steep * log1p(4), -steep * log1p(5)),
        output=(1.0, -1.0),
        start=SHORT_ODDS,
    )
    bound = Bound(worth=BOUND, lost=0.02, risk=0.1, questions=100, by_rule=0.5)
    return Scorer(Worth(numbers=NAMES[:1], network=network, bound=bound, differs=((1.0, 0.1),)))
