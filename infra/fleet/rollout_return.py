"""The way back of a rollout: the states that send one stack back to the release before, in Amazon States Language.

infra/fleet/rollout_machine.py starts an execution of them for every cell at once where an alarm tells of harm.
"""

from __future__ import annotations

from infra.fleet.rollout_states import (
    ANY_TASK,
    FAILED,
    WELL,
    WENT_BACK,
    State,
    holding,
    looking,
    phase,
    put,
    task,
    unless_unchanged,
)
from infra.fleet.settings import FleetSettings


def return_states(settings: FleetSettings) -> dict[str, State]:
    """Return the states that send one stack back, whatever it is changing now, at the fast speed and without a bake.

    The first is `Cancel`.

    A stack that has not been changed yet is left as it is.
    """
    look = looking()
    at = {"Variable": "$.phase", "StringEquals": "return"}
    well = [{"Variable": "$.found.stack.StackStatus", "StringEquals": status} for status in (*WELL, WENT_BACK)]
    choices = [
        {"Variable": "$.found.stack.StackStatus", "StringMatches": "*_IN_PROGRESS", "Next": "Wait"},
        {"And": [at, {"Or": well}], "Next": "Return"},
        {"Variable": "$.found.stack.StackStatus", "StringEquals": "UPDATE_COMPLETE", "Next": "Forget"},
    ]
    returned = {
        "StackName.$": "$.item.stack",
        "UsePreviousTemplate": True,
        "Parameters.$": "$.item.parameters",
        "RoleARN.$": "$.item.role",
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    }
    return {
        "Cancel": {
            **task("cloudformation:cancelUpdateStack", {"StackName.$": "$.item.stack"}),
            "ResultPath": None,
            "Catch": [{**ANY_TASK, "ResultPath": None, "Next": "Begin"}],  # most change nothing now
            "Next": "Begin",
        },
        "Begin": phase("return", then="Lock"),
        **holding(settings),
        **look,
        "Look": {**look["Look"], "Catch": [{**ANY_TASK, "ResultPath": "$.found", "Next": "Done"}]},
        "WhatNext": {"Type": "Choice", "Choices": choices, "Default": "StackFailed"},
        "Return": {
            **task("cloudformation:updateStack", returned),
            "ResultPath": None,
            "Catch": [{**ANY_TASK, "ResultPath": "$.refused", "Next": "IsUnchanged"}],
            "Next": "Returning",
        },
        "IsUnchanged": unless_unchanged("Forget"),
        "Refused": {"Type": "Fail", "Error": FAILED, "CausePath": "$.refused.Cause"},
        "Returning": phase("returned", then="Wait"),
        "Forget": put("$.item.done_in", "$.item.back", then="Done"),
        "Done": {"Type": "Pass", "Result": {}, "End": True},
    }
