"""The state machine that brings a release to every cell from inside the account, in Amazon States Language.

Cells change in waves, each under its deploy marker, gated by its alarms and baked; then come the names and alarms over
them. Where an alarm tells of harm, every cell that has the release goes back to the one before, all at once.
`make deploy` (infra/operations/rollout.py) rehearses the fleet, has the CDK create the stacks that are missing, takes
the fleet's lock and hands it over: the machine renews it with every look at a stack, and stops before its next change
where another process has it. What a cell has behind it is kept in a parameter, so that a later execution skips it where
its stack is well. Each stack is moved by an execution of its own (rollout_children.py).
"""

from __future__ import annotations

from infra.fleet.rollout_arms import comparing
from infra.fleet.rollout_children import MOVES, RETURNS, each, named, way
from infra.fleet.rollout_return import return_states
from infra.fleet.rollout_states import (
    ANY_TASK,
    FAILED,
    LOST,
    WELL,
    State,
    held_by,
    holding,
    looking,
    phase,
    put,
    renewed,
    task,
    unless_unchanged,
)
from infra.fleet.settings import FleetSettings

HARM = "HarmSeen"


def definition(settings: FleetSettings) -> State:
    """Return the machine. The rollout's input is made by infra/operations/handover.py, its executions' by itself."""
    return {
        "Comment": f"Brings a release to every cell of {settings.name}, wave by wave",
        "StartAt": "Which",
        "States": {
            "Which": {
                "Type": "Choice",
                "Choices": [way(MOVES, "Before"), way(RETURNS, "BackCancel")],
                "Default": "Waves",
            },
            **_waves(settings),
            **_giving_up(settings),
            **_moving_one(settings),
            **named("Back", return_states(settings)),
        },
    }


def _waves(settings: FleetSettings) -> dict[str, State]:
    wave = each("Cell", "$.cells", MOVES, settings.rollout.parallel_cells)
    return {
        "Waves": {
            "Type": "Map",
            "ItemsPath": "$.waves",
            "ItemSelector": {"cells.$": "$$.Map.Item.Value", "lock.$": "$.lock", "deployment.$": "$.deployment"},
            "MaxConcurrency": 1,
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "INLINE"},
                "StartAt": "Cells",
                "States": {"Cells": {**wave, "End": True}},
            },
            "ResultPath": None,
            "Next": "Over",
            "Catch": _caught("GiveUp"),
        },
        "Over": {**each("Over", "$.over", MOVES), "Next": "Finished", "Catch": _caught("GiveUp")},
        "Finished": put("$.deployment", "$.states.after", then="GiveBack"),
        "GiveBack": {**task("ssm:deleteParameter", {"Name.$": "$.lock.name"}), "ResultPath": None, "End": True},
    }


def _giving_up(settings: FleetSettings) -> dict[str, State]:
    """Return the states after a failure: every cell back where it was harm, and the lock given back."""
    lost = {"Variable": "$.failure.Error", "StringEquals": LOST, "Next": "HowItFailed"}
    harm = {"Variable": "$.failure.Error", "StringEquals": HARM}
    has_before = {"Variable": "$.back.count", "NumericGreaterThan": 0}
    said = {"Cause.$": "States.Format('{}; every cell is back at the release before', $.failure.Cause)"}
    return {
        "GiveUp": {
            "Type": "Choice",
            "Choices": [lost, {"And": [harm, has_before], "Next": "ReturnLock"}],
            "Default": "GiveBackAndStop",
        },
        **_lock_of_the_way_back(),
        "ReturnCells": {
            **each("Return", "$.back.cells", RETURNS, settings.cells),
            "Next": "WentBack",
            "Catch": _caught("GiveUp"),
        },
        "WentBack": {
            "Type": "Pass",
            "Parameters": {"Error.$": "$.failure.Error", **said},
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
    }


def _lock_of_the_way_back() -> dict[str, State]:
    """Return the states that make the lock another one, with which the cells go back.

    Step Functions stops the executions of other cells where one fails, as far as it can. What of them still runs has
    lost the lock; one that read it just before may write its own over it once, so it is looked at again.
    """
    kept = {f"{part}.$": f"$.lock.{part}" for part in ("name", "began", "settle_seconds")}
    token = {"before.$": "$.lock.token", "token.$": "States.Format('{}-back', $.lock.token)"}
    again = held_by("ReturnCells", lost="HowItFailed", called="Still")
    written_over = {"Variable": "$.held.holder.token", "StringEqualsPath": "$.lock.before", "Next": "ReturnRenewal"}
    again["StillIsOurs"]["Choices"].append(written_over)
    return {
        **held_by("ReturnToken", lost="HowItFailed", called="Return"),
        "ReturnToken": {
            "Type": "Pass",
            "Parameters": {**kept, **token},
            "ResultPath": "$.lock",
            "Next": "ReturnRenewal",
        },
        **renewed("Settle", called="Return"),
        "Settle": {"Type": "Wait", "SecondsPath": "$.lock.settle_seconds", "Next": "StillLock"},
        **again,
    }


def _moving_one(settings: FleetSettings) -> dict[str, State]:
    """Return the states that move one stack, gate and bake it, and let it rest at the fast speed, from `Before` on.

    One loop: the lock is looked at and renewed, the deploy marked, and the stack described, before every step.
    """
    return {**_beginning(), **holding(settings), **looking(), **_moving(), **_baking(), **_ending()}


def _beginning() -> State:
    """Return the states that skip a stack which has the deploy behind it: its mark says so, and it is there and well.

    Somebody may have changed the stack since, which leaves its mark.
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
        "IsThere": {**looking()["Look"], "Next": "IsWell"},
        "IsWell": {"Type": "Choice", "Choices": [{"Or": well, "Next": "Done"}], "Default": "Begin"},
        "Begin": phase("move", then="Lock"),
        "Done": {"Type": "Pass", "Result": {}, "End": True},
    }


def _moving() -> State:
    return {
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
    # Both releases are read once some time is over: CloudWatch refuses to read none.
    has_arms = [
        {"Variable": "$.baking.looks", "NumericGreaterThan": 0},
        {"Variable": "$.item.arms.count", "NumericGreaterThan": 0},
    ]
    baked = {"Variable": "$.baking.looks", "NumericGreaterThanEqualsPath": "$.item.looks", "Next": "Rest"}
    return {
        "BeginBaking": {
            "Type": "Pass",
            "Parameters": {"looks": 0, "since.$": "$$.State.EnteredTime"},
            "ResultPath": "$.baking",
            "Next": "Baking",
        },
        "Baking": phase("bake", then="Wait"),
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
                {"And": has_arms, "Next": "Arms"},
                baked,
            ],
            "Default": "LookAgain",
        },
        **comparing(baked, then="LookAgain", error=HARM),
        "LookAgain": {
            "Type": "Pass",
            "Parameters": {"looks.$": "States.MathAdd($.baking.looks, 1)", "since.$": "$.baking.since"},
            "ResultPath": "$.baking",
            "Next": "Wait",
        },
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
