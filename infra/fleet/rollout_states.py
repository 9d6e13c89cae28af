"""The states that a rollout's two ways share, in Amazon States Language: the lock, the marker, the look at a stack."""

import math
from typing import Any

from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings

State = dict[str, Any]
LOOK_SECONDS = 30  # between two looks at a stack; the lock and the marker, which go with them, tolerate minutes
SLOWEST_LOOK_SECONDS = 120  # at which the marker, which the page alarm forgets after three minutes, still holds
# An execution's history has 25,000 events at most (AWS Step Functions developer guide, Service quotas). One look at a
# stack is so many at most: a task is five, any other state two.
MOST_HISTORY, HISTORY_A_LOOK = 25_000, 53
MARKER = "DeployInProgress"
WELL, WENT_BACK = ("CREATE_COMPLETE", "UPDATE_COMPLETE"), "UPDATE_ROLLBACK_COMPLETE"
LOST, FAILED = "LockLost", "StackFailed"
ANY_TASK = {"ErrorEquals": ["States.TaskFailed"]}
_SAID = "States.Format('{} is {}; see its events in CloudFormation', $.item.stack, $.found.stack.StackStatus)"
# AWS limits calls a second; any other error is tried again as well, because a rollout is hours of work.
_REPEATED = (
    "ssm:putParameter",
    "cloudwatch:describeAlarms",
    "cloudwatch:getMetricData",
    "cloudformation:describeStacks",
)
_RETRY = [{**ANY_TASK, "IntervalSeconds": 2, "MaxAttempts": 5, "BackoffRate": 2, "JitterStrategy": "FULL"}]


def machine_name(settings: FleetSettings) -> str:
    return f"peakplan-{settings.name}-rollout"


def done_parameter(settings: FleetSettings, stack: str) -> str:
    """Return the name of the parameter that holds which deploy a stack has behind it."""
    return f"/peakplan/{settings.name}/rollout/{stack}"


def back_at(release: str) -> str:
    """Return what that parameter holds once the stack went back: no deploy's mark, so that none skips it."""
    return f"back at {release}"


def look_seconds(seconds: float) -> int | None:
    """Return how far apart the looks at a stack are that moves and bakes so long, or None: one execution is too short.

    A fifth of its history is left for whatever is tried again.
    """
    needed = max(LOOK_SECONDS, math.ceil(seconds * HISTORY_A_LOOK / (0.8 * MOST_HISTORY)))
    return needed if needed <= SLOWEST_LOOK_SECONDS else None


def held_by(then: str, *, lost: str, called: str = "") -> dict[str, State]:
    """Return the states, called after `called`, that go on to `then` where the lock is ours, else to `lost`."""
    ours = {"Variable": "$.held.holder.token", "StringEqualsPath": "$.lock.token", "Next": then}
    return {
        f"{called}Lock": {
            **task("ssm:getParameter", {"Name.$": "$.lock.name"}),
            "ResultSelector": {"holder.$": "States.StringToJson($.Parameter.Value)"},
            "ResultPath": "$.held",
            "Catch": [{**ANY_TASK, "ResultPath": "$.held", "Next": lost}],
            "Next": f"{called}IsOurs",
        },
        f"{called}IsOurs": {"Type": "Choice", "Choices": [ours], "Default": lost},
    }


def renewed(then: str, *, called: str = "") -> dict[str, State]:
    """Return the states, called after `called`, that write the lock anew, as $.lock has it."""
    holder = {
        "token.$": "$.lock.token",
        "action": "deploy",
        "who.$": "$$.Execution.Id",
        "host": "AWS Step Functions",
        "process": 0,
        "began.$": "$.lock.began",
        "renewed.$": "$$.State.EnteredTime",
    }
    return {
        f"{called}Renewal": {"Type": "Pass", "Parameters": holder, "ResultPath": "$.holder", "Next": f"{called}Renew"},
        f"{called}Renew": put("$.lock.name", "States.JsonToString($.holder)", then=then),
    }


def holding(settings: FleetSettings) -> State:
    """Return the states that every round begins with: the lock is ours, and is renewed; the deploy is marked."""
    values = {"Fleet": settings.name, "Cell": "$.item.cell"}
    (names,) = metrics().metric(MARKER).dimensions
    dimensions = [{"Name": name, ("Value.$" if name == "Cell" else "Value"): values[name]} for name in names]
    datum = {"MetricName": MARKER, "Dimensions": dimensions, "Value": 1, "Unit": metrics().metric(MARKER).unit}
    return {
        **held_by("Renewal", lost="LockLost"),
        "LockLost": {"Type": "Fail", "Error": LOST, "Cause": "the fleet's lock was taken: nothing more is changed"},
        **renewed("IsCell"),
        "IsCell": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.item.cell", "StringEquals": "", "Next": "Look"}],
            "Default": "Mark",
        },
        "Mark": {
            **task("cloudwatch:putMetricData", {"Namespace": metrics().namespace(MARKER), "MetricData": [datum]}),
            "ResultPath": None,
            "Catch": [{**ANY_TASK, "ResultPath": None, "Next": "Look"}],  # a lost marker must not end a deploy
            "Next": "Look",
        },
    }


def looking() -> State:
    """Return the states that look at the stack and choose what comes next by its status and the phase of its move."""

    def when(phase: str, then: str, *statuses: str) -> State:
        at = {"Variable": "$.phase", "StringEquals": phase}
        if not statuses:
            return {**at, "Next": then}
        one_of = [{"Variable": "$.found.stack.StackStatus", "StringEquals": status} for status in statuses]
        return {"And": [at, {"Or": one_of}], "Next": then}

    return {
        "Look": {
            **task("cloudformation:describeStacks", {"StackName.$": "$.item.stack"}),
            "ResultSelector": {"stack.$": "States.ArrayGetItem($.Stacks, 0)"},
            "ResultPath": "$.found",
            "Next": "WhatNext",
        },
        "WhatNext": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.found.stack.StackStatus", "StringMatches": "*_IN_PROGRESS", "Next": "Wait"},
                when("move", "Move"),
                when("moved", "Moved", *WELL),
                when("bake", "Gate"),
                when("rest", "Record", *WELL),
            ],
            "Default": "StackFailed",
        },
        "Wait": {"Type": "Wait", "SecondsPath": "$.item.look_seconds", "Next": "Lock"},
        "StackFailed": {"Type": "Fail", "Error": FAILED, "CausePath": _SAID},
    }


def unless_unchanged(then: str) -> State:
    """Return the choice after a refused update: on to `then` where there was nothing to change, else the failure."""
    unchanged = {"Variable": "$.refused.Cause", "StringMatches": "*No updates are to be performed*", "Next": then}
    return {"Type": "Choice", "Choices": [unchanged], "Default": "Refused"}


def task(call: str, parameters: State) -> State:
    """Return the state that calls an API of AWS's SDK; calls that AWS limits are repeated."""
    task = {"Type": "Task", "Resource": f"arn:aws:states:::aws-sdk:{call}", "Parameters": parameters}
    return {**task, "Retry": _RETRY} if call in _REPEATED else task


def put(name: str, value: str, *, then: str) -> State:
    """Return the state that writes a parameter; `name` and `value` are paths, or `value` an intrinsic function."""
    written = {"Name.$": name, "Value.$": value, "Type": "String", "Overwrite": True, "Tier": "Intelligent-Tiering"}
    return {**task("ssm:putParameter", written), "ResultPath": None, "Next": then}


def phase(phase: str, *, then: str) -> State:
    """Return the state that remembers which phase of its move the stack is in."""
    return {"Type": "Pass", "Result": phase, "ResultPath": "$.phase", "Next": then}
