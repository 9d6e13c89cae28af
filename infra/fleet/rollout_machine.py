"""The state machine that brings a release to every cell from inside the account, in Amazon States Language.

It is what infra/operations/rollout.py does from a shell: waves of cells, each under its deploy marker, gated by its
alarms and baked; then the names and alarms over them. Where an alarm tells of harm, every cell that has the release
goes back to the one before, all at once. Whoever starts it (infra/operations/handover.py) has rehearsed
the fleet, holds its lock and hands that over: the machine renews it with every look at a stack, and stops before its
next change where somebody else has it. What a cell has behind it is kept in a parameter, so that a later execution
skips it where its stack is there and well. It knows nothing of the CDK.
"""

from __future__ import annotations

from infra.fleet.rollout_return import return_machine
from infra.fleet.rollout_states import (
    ANY_TASK,
    FAILED,
    LOST,
    WELL,
    State,
    holding,
    looking,
    phase,
    put,
    task,
    unless_unchanged,
)
from infra.fleet.settings import FleetSettings

HARM = "HarmSeen"
_ITEM: State = {"item.$": "$$.Map.Item.Value"}


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
            "Finished": put("$.deployment", "$.states.after", then="GiveBack"),
            "GiveBack": {**task("ssm:deleteParameter", {"Name.$": "$.lock.name"}), "ResultPath": None, "End": True},
            "GiveUp": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.failure.Error", "StringEquals": LOST, "Next": "HowItFailed"},
                    {
                        "And": [
                            {"Variable": "$.failure.Error", "StringEquals": HARM},
                            {"Variable": "$.back.count", "NumericGreaterThan": 0},
                        ],
                        "Next": "GoBack",
                    },
                ],
                "Default": "GiveBackAndStop",
            },
            "GoBack": {
                **_each("$.back.cells", _ITEM, return_machine(settings), settings.cells),
                "Next": "WentBack",
                "Catch": _caught("GiveUp"),
            },
            "WentBack": {
                "Type": "Pass",
                "Parameters": {
                    "Error.$": "$.failure.Error",
                    "Cause.$": "States.Format('{}; every cell is back at the release before', $.failure.Cause)",
                },
                "ResultPath": "$.failure",
                "Next": "Returned",
            },
            "Returned": put("$.deployment", "$.states.returned", then="GiveBackAndStop"),
            "GiveBackAndStop": {
                **task("ssm:deleteParameter", {"Name.$": "$.lock.name"}),
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
        "States": {**_beginning(), **holding(settings), **looking(), **_moving(), **_baking(), **_ending()},
    }


def _beginning() -> State:
    """Return the states that skip a stack which has the deploy behind it: its mark says so, and it is there and well.

    Somebody may have deleted the stack since, which leaves its mark.
    """
    well = [{"Variable": "$.found.stack.StackStatus", "StringEquals": status} for status in WELL]
    marked = {"Variable": "$.before.Parameter.Value", "StringEqualsPath": "$.item.deploy"}
    return {
        "Before": {
            **task("ssm:getParameter", {"Name.$": "$.item.done_in"}),
            "ResultPath": "$.before",
            "Catch": [{**ANY_TASK, "ResultPath": "$.before", "Next": "Begin"}],
            "Next": "HasItAlready",
        },
        "HasItAlready": {"Type": "Choice", "Choices": [{**marked, "Next": "IsThere"}], "Default": "Begin"},
        "IsThere": {
            **looking()["Look"],
            "Catch": [{**ANY_TASK, "ResultPath": "$.found", "Next": "Begin"}],
            "Next": "IsWell",
        },
        "IsWell": {"Type": "Choice", "Choices": [{"Or": well, "Next": "Done"}], "Default": "Begin"},
        "Begin": phase("move", then="Lock"),
        "Done": {"Type": "Succeed"},
    }


def _moving() -> State:
    return {
        "Create": {
            **task("cloudformation:createStack", _change("$.item.parameters")),
            "ResultPath": None,
            "Next": "Changing",
        },
        "Move": {
            **task("cloudformation:updateStack", _change("$.item.parameters")),
            "ResultPath": None,
            "Catch": [{**ANY_TASK, "ResultPath": "$.refused", "Next": "IsUnchanged"}],
            "Next": "Changing",
        },
        "IsUnchanged": unless_unchanged("Moved"),
        "Refused": {"Type": "Fail", "Error": FAILED, "CausePath": "$.refused.Cause"},
        "Changing": phase("moved", then="Wait"),
        "Moved": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.item.cell", "StringEquals": "", "Next": "Record"}],
            "Default": "BeginBaking",
        },
    }


def _baking() -> State:
    return {
        "BeginBaking": {"Type": "Pass", "Result": 0, "ResultPath": "$.looks", "Next": "Baking"},
        "Baking": phase("bake", then="Gate"),
        "Gate": {
            **task("cloudwatch:describeAlarms", {"AlarmNames.$": "$.item.gates", "StateValue": "ALARM"}),
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
        "Hurt": put("$.deployment", "$.item.hurt", then="Harm"),
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
            **task("cloudformation:updateStack", _change("$.item.resting")),
            "ResultPath": None,
            "Next": "Resting",
        },
        "Resting": phase("rest", then="Wait"),
        "Record": put("$.item.done_in", "$.item.deploy", then="Done"),
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


def _caught(then: str) -> list[State]:
    return [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.failure", "Next": then}]
