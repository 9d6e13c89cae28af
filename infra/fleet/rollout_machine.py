"""The state machine that brings a release to every cell from inside the account, in Amazon States Language.

It is what infra/operations/rollout.py does from a shell: waves of cells, each under its deploy marker, gated by its
alarms and baked; then the names and alarms over them. Whoever starts it (infra/operations/handover.py) has rehearsed
the fleet, holds its lock and hands that over: the machine renews it with every look at a stack, and stops before its
next change where somebody else has it. What a cell has behind it is kept in a parameter, so that a later execution
skips it. It knows nothing of the CDK.
"""

from __future__ import annotations

from typing import Any

from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings

State = dict[str, Any]
LOOK_SECONDS = 30  # between two looks at a stack; the lock and the marker, which go with them, tolerate minutes
MARKER = "DeployInProgress"
WELL = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
HARM, LOST, FAILED = "HarmSeen", "LockLost", "StackFailed"
_ITEM: State = {"item.$": "$$.Map.Item.Value"}
_ANY_TASK = {"ErrorEquals": ["States.TaskFailed"]}
# AWS limits calls a second; any other error is tried again as well, because a rollout is hours of work.
_SAID = "States.Format('{} is {}; see its events in CloudFormation', $.item.stack, $.found.stack.StackStatus)"
_REPEATED = ("ssm:putParameter", "cloudwatch:describeAlarms")
_RETRY = [{**_ANY_TASK, "IntervalSeconds": 2, "MaxAttempts": 5, "BackoffRate": 2, "JitterStrategy": "FULL"}]


def machine_name(settings: FleetSettings) -> str:
    """Return the name of the fleet's state machine."""
    return f"peakplan-{settings.name}-rollout"


def done_parameter(settings: FleetSettings, stack: str) -> str:
    """Return the name of the parameter that holds which deploy a stack has behind it."""
    return f"/peakplan/{settings.name}/rollout/{stack}"


def definition(settings: FleetSettings) -> State:
    """Return the machine. Its input is made by infra/operations/handover.py."""
    stack = _stack_machine(settings)
    waves = {"cells.$": "$$.Map.Item.Value"}
    return {
        "Comment": f"Brings a release to every cell of {settings.name}, wave by wave",
        "StartAt": "Waves",
        "States": {
            "Waves": {**_each("$.waves", waves, _wave(settings)), "Next": "Over", "Catch": _caught("GiveUp")},
            "Over": {
                **_each("$.over", _ITEM, stack),
                "Next": "Finished",
                "Catch": _caught("GiveUp"),
            },
            "Finished": _put("$.deployment", "$.states.after", then="GiveBack"),
            "GiveBack": {**_task("ssm:deleteParameter", {"Name.$": "$.lock.name"}), "ResultPath": None, "End": True},
            "GiveUp": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.failure.Error", "StringEquals": LOST, "Next": "HowItFailed"}],
                "Default": "GiveBackAndStop",
            },
            "GiveBackAndStop": {
                **_task("ssm:deleteParameter", {"Name.$": "$.lock.name"}),
                "ResultPath": None,
                "Next": "HowItFailed",
            },
            "HowItFailed": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.failure.Error", "StringMatches": "States.*", "Next": "Failed"}],
                "Default": "Stopped",
            },
            # Names that begin with States. are Step Functions' own, and no state may fail with one.
            "Failed": {"Type": "Fail", "Error": FAILED, "CausePath": "$.failure.Cause"},
            "Stopped": {"Type": "Fail", "ErrorPath": "$.failure.Error", "CausePath": "$.failure.Cause"},
        },
    }


def _wave(settings: FleetSettings) -> State:
    """Return the machine of one wave, whose cells change side by side."""
    at_once = settings.rollout.parallel_cells
    cells = {**_each("$.cells", _ITEM, _stack_machine(settings), at_once), "End": True}
    return {"StartAt": "Cells", "States": {"Cells": cells}}


def _each(items: str, selected: State, machine: State, at_once: int = 1) -> State:
    """Return the state that runs the machine for each of the items, with the lock and the fleet's own values."""
    return {
        "Type": "Map",
        "ItemsPath": items,
        "ItemSelector": {**selected, "lock.$": "$.lock", "deployment.$": "$.deployment"},
        "MaxConcurrency": at_once,
        "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **machine},
        "ResultPath": None,
    }


def _stack_machine(settings: FleetSettings) -> State:
    """Return the machine that moves one stack, gates and bakes it, and lets it rest at the fast speed.

    One loop: the lock is looked at and renewed, the deploy marked, and the stack described, before every step.
    """
    return {
        "StartAt": "Before",
        "States": {**_beginning(), **_holding(settings), **_looking(), **_moving(), **_baking(), **_ending()},
    }


def _beginning() -> State:
    return {
        "Before": {
            **_task("ssm:getParameter", {"Name.$": "$.item.done_in"}),
            "ResultPath": "$.before",
            "Catch": [{**_ANY_TASK, "ResultPath": "$.before", "Next": "Begin"}],
            "Next": "HasItAlready",
        },
        "HasItAlready": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.before.Parameter.Value", "StringEqualsPath": "$.item.deploy", "Next": "Done"}],
            "Default": "Begin",
        },
        "Begin": _phase("move", then="Lock"),
        "Done": {"Type": "Succeed"},
    }


def _holding(settings: FleetSettings) -> State:
    """Return the states that every round begins with: the lock is ours, and is renewed; the deploy is marked."""
    holder = {
        "token.$": "$.lock.token",
        "action": "deploy",
        "who.$": "$$.Execution.Id",
        "host": "AWS Step Functions",
        "process": 0,
        "began.$": "$.lock.began",
        "renewed.$": "$$.State.EnteredTime",
    }
    values = {"Fleet": settings.name, "Cell": "$.item.cell"}
    (names,) = metrics().metric(MARKER).dimensions
    dimensions = [{"Name": name, ("Value.$" if name == "Cell" else "Value"): values[name]} for name in names]
    datum = {"MetricName": MARKER, "Dimensions": dimensions, "Value": 1, "Unit": metrics().metric(MARKER).unit}
    return {
        "Lock": {
            **_task("ssm:getParameter", {"Name.$": "$.lock.name"}),
            "ResultSelector": {"holder.$": "States.StringToJson($.Parameter.Value)"},
            "ResultPath": "$.held",
            "Catch": [{**_ANY_TASK, "ResultPath": "$.held", "Next": "LockLost"}],
            "Next": "IsOurs",
        },
        "IsOurs": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.held.holder.token", "StringEqualsPath": "$.lock.token", "Next": "Renewal"}],
            "Default": "LockLost",
        },
        "LockLost": {"Type": "Fail", "Error": LOST, "Cause": "the fleet's lock was taken: nothing more is changed"},
        "Renewal": {"Type": "Pass", "Parameters": holder, "ResultPath": "$.holder", "Next": "Renew"},
        "Renew": _put("$.lock.name", "States.JsonToString($.holder)", then="IsCell"),
        "IsCell": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.item.cell", "StringEquals": "", "Next": "Look"}],
            "Default": "Mark",
        },
        "Mark": {
            **_task("cloudwatch:putMetricData", {"Namespace": metrics().namespace(MARKER), "MetricData": [datum]}),
            "ResultPath": None,
            "Catch": [{**_ANY_TASK, "ResultPath": None, "Next": "Look"}],  # a lost marker must not end a deploy
            "Next": "Look",
        },
    }


def _looking() -> State:
    def when(phase: str, then: str, *statuses: str) -> State:
        at = {"Variable": "$.phase", "StringEquals": phase}
        if not statuses:
            return {**at, "Next": then}
        one_of = [{"Variable": "$.found.stack.StackStatus", "StringEquals": status} for status in statuses]
        return {"And": [at, {"Or": one_of}], "Next": then}

    return {
        "Look": {
            **_task("cloudformation:describeStacks", {"StackName.$": "$.item.stack"}),
            "ResultSelector": {"stack.$": "States.ArrayGetItem($.Stacks, 0)"},
            "ResultPath": "$.found",
            "Retry": [{**_ANY_TASK, "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1}],
            "Catch": [{**_ANY_TASK, "ResultPath": "$.found", "Next": "Create"}],
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
        "Wait": {"Type": "Wait", "SecondsPath": "$.lock.look_seconds", "Next": "Lock"},
        "StackFailed": {
            "Type": "Fail",
            "Error": FAILED,
            "CausePath": _SAID,
        },
    }


def _moving() -> State:
    return {
        "Create": {
            **_task("cloudformation:createStack", _change("$.item.parameters")),
            "ResultPath": None,
            "Next": "Changing",
        },
        "Move": {
            **_task("cloudformation:updateStack", _change("$.item.parameters")),
            "ResultPath": None,
            "Catch": [{**_ANY_TASK, "ResultPath": "$.refused", "Next": "IsUnchanged"}],
            "Next": "Changing",
        },
        "IsUnchanged": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.refused.Cause", "StringMatches": "*No updates are to be performed*", "Next": "Moved"}
            ],
            "Default": "Refused",
        },
        "Refused": {"Type": "Fail", "Error": FAILED, "CausePath": "$.refused.Cause"},
        "Changing": _phase("moved", then="Wait"),
        "Moved": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.item.cell", "StringEquals": "", "Next": "Record"}],
            "Default": "BeginBaking",
        },
    }


def _baking() -> State:
    return {
        "BeginBaking": {"Type": "Pass", "Result": 0, "ResultPath": "$.looks", "Next": "Baking"},
        "Baking": _phase("bake", then="Gate"),
        "Gate": {
            **_task("cloudwatch:describeAlarms", {"AlarmNames.$": "$.item.gates", "StateValue": "ALARM"}),
            "ResultSelector": {"fired.$": "States.ArrayLength($.MetricAlarms)"},
            "ResultPath": "$.gate",
            "Next": "IsHurt",
        },
        "IsHurt": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.gate.fired", "NumericGreaterThan": 0, "Next": "Hurt"},
                {"Variable": "$.looks", "NumericGreaterThanEqualsPath": "$.item.looks", "Next": "Rest"},
            ],
            "Default": "LookAgain",
        },
        "LookAgain": {
            "Type": "Pass",
            "Parameters": {"count.$": "States.MathAdd($.looks, 1)"},
            "ResultPath": "$.counted",
            "Next": "Counted",
        },
        "Counted": {"Type": "Pass", "InputPath": "$.counted.count", "ResultPath": "$.looks", "Next": "Wait"},
        "Hurt": _put("$.deployment", "$.item.hurt", then="Harm"),
        "Harm": {
            "Type": "Fail",
            "Error": HARM,
            "CausePath": "States.Format('{}: {} fired, so no further cell is deployed. "
            "See docs/runbooks/deploy-health.md', $.item.cell, States.JsonToString($.item.gates))",
        },
    }


def _ending() -> State:
    return {
        "Rest": {
            **_task("cloudformation:updateStack", _change("$.item.resting")),
            "ResultPath": None,
            "Next": "Resting",
        },
        "Resting": _phase("rest", then="Wait"),
        "Record": _put("$.item.done_in", "$.item.deploy", then="Done"),
    }


def _change(parameters: str) -> State:
    return {
        "StackName.$": "$.item.stack",
        "TemplateURL.$": "$.item.template",
        "Parameters.$": parameters,
        "Tags.$": "$.item.tags",
        "RoleARN.$": "$.item.role",
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    }


def _task(call: str, parameters: State) -> State:
    task = {"Type": "Task", "Resource": f"arn:aws:states:::aws-sdk:{call}", "Parameters": parameters}
    return {**task, "Retry": _RETRY} if call in _REPEATED else task


def _put(name: str, value: str, *, then: str) -> State:
    """Return the state that writes a parameter; `name` and `value` are paths, or `value` an intrinsic function."""
    written = {"Name.$": name, "Value.$": value, "Type": "String", "Overwrite": True, "Tier": "Intelligent-Tiering"}
    return {**_task("ssm:putParameter", written), "ResultPath": None, "Next": then}


def _phase(phase: str, *, then: str) -> State:
    return {"Type": "Pass", "Result": phase, "ResultPath": "$.phase", "Next": then}


def _caught(then: str) -> list[State]:
    return [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.failure", "Next": then}]
