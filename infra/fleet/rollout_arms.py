"""The states in which a rollout reads its two releases beside each other (release_arms.py)."""

from __future__ import annotations

from infra.fleet.release_arms import MEASURES
from infra.fleet.rollout_states import ANY_TASK, State, put, task

WORSE = (
    "shoppers click or buy less with the release than with the one before beside it, so no further cell is deployed. "
    "See docs/runbooks/shoppers-harmed.md"
)


def comparing(baked: State, *, then: str, error: str) -> State:
    """Return the states that read both releases' shoppers and fail with `error` where the new one's lose.

    `baked` is the choice of a cell that has baked long enough; else it goes on to `then`.
    """
    told = [f"$.arms.MetricDataResults[{number}].Values[0]" for number in range(len(MEASURES))]
    worse = [
        {"And": [{"Variable": each, "IsPresent": True}, {"Variable": each, "NumericGreaterThan": 0}]} for each in told
    ]
    asked = {
        "MetricDataQueries.$": "$.item.arms.queries",
        "StartTime.$": "$.baking.since",
        "EndTime.$": "$$.State.EnteredTime",
        "ScanBy": "TimestampDescending",
    }
    return {
        "Arms": {
            **task("cloudwatch:getMetricData", asked),
            "ResultPath": "$.arms",
            # A deploy does not end because this cannot be read: the alarms on shoppers watch, too.
            "Catch": [{**ANY_TASK, "ResultPath": "$.arms", "Next": "IsWorse"}],
            "Next": "IsWorse",
        },
        "IsWorse": {"Type": "Choice", "Choices": [{"Or": worse, "Next": "Worse"}, baked], "Default": then},
        "Worse": put("$.deployment", "$.item.hurt", then="HarmBeside"),
        "HarmBeside": {"Type": "Fail", "Error": error, "CausePath": f"States.Format('{{}}: {WORSE}', $.item.cell)"},
    }
