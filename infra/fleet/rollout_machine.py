"""The state machine that brings a release to every cell from inside the account, in Amazon States Language.

Cells change in waves, each under its deploy marker, gated by its alarms and baked; then come the names and alarms over
them. Where an alarm tells of harm, every cell that has the release goes back to the one before, all at once.
`make deploy` (infra/operations/rollout.py) rehearses the fleet, has the CDK create the stacks that are missing, takes
the fleet's lock and hands it over: the machine renews it with every look at a stack, and stops before its next change
where another process has it. A parameter records each finished cell, so that a later execution skips it if its stack
is well.

Each stack is moved, or sent back, by an execution of its own: an execution's history ends at 25,000 events (AWS Step
Functions developer guide, Service quotas), and hours of looking at six cells are more than that. They run the same
machine, whose first state chooses by the input's `way`. Stopping this machine's executions stops the whole rollout.
"""

from typing import Any

from infra.fleet.release_arms import MEASURES
from infra.fleet.rollout_states import (
    ANY_TASK,
    FAILED,
    LOST,
    WELL,
    WENT_BACK,
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
    """Return the states after a failure: after harm the cells go back; a lock still held is released."""
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
    """Return the states that replace the lock by the one under which the cells go back.

    When one cell's execution fails, Step Functions stops the others as far as it can. One that still runs has lost
    the lock. If it read the lock just before, it may overwrite it once, so the lock is read again.
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


# An execution of a stack's own is told its way by its input; one without a way is the rollout itself.
MOVES, RETURNS = "move", "return"
_RUN = "arn:aws:states:::states:startExecution.sync:2"
_SAID = "$.read.said"  # what DescribeExecution says of one that failed: the cause of the task's failure


def way(mode: str, then: str) -> State:
    """Return the choice for executions whose input's `way` is `mode`."""
    present = {"Variable": "$.way", "IsPresent": True}
    return {"And": [present, {"Variable": "$.way", "StringEquals": mode}], "Next": then}


def each(name: str, items: str, mode: str, at_once: int = 1) -> State:
    """Return the map that runs an execution for each of the items; the states within are called after `name`."""
    return {
        "Type": "Map",
        "ItemsPath": items,
        "ItemSelector": {"item.$": "$$.Map.Item.Value", "lock.$": "$.lock", "deployment.$": "$.deployment"},
        "MaxConcurrency": at_once,
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "INLINE"},
            "StartAt": f"{name}Run",
            "States": named(name, _states(mode)),
        },
        "ResultPath": None,
    }


def _states(mode: str) -> dict[str, State]:
    """Return the states that run one execution and fail with its error.

    The error of the task is always States.TaskFailed; its cause is what DescribeExecution says, as JSON. An execution
    that a person stopped counts as one that lost the lock: nothing more is changed.
    """
    status, error = (f"{_SAID}.{name}" for name in ("Status", "Error"))
    stopped = [{"Variable": status, "IsPresent": True}, {"Variable": status, "StringEquals": "ABORTED"}]
    # Names that begin with States. are Step Functions' own, and no state may fail with one.
    nameable = [{"Variable": error, "IsPresent": True}, {"Not": {"Variable": error, "StringMatches": "States.*"}}]
    handed = {f"{name}.$": f"$.{name}" for name in ("item", "lock", "deployment")}
    return {
        "Run": {
            "Type": "Task",
            "Resource": _RUN,
            "Parameters": {
                "StateMachineArn.$": "$$.StateMachine.Id",
                "Name.$": "States.Format('{}-{}', $.lock.token, $.item.called)",  # so that a shell can follow it
                "Input": {"way": mode, **handed, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id"},
            },
            "ResultPath": None,
            "Catch": [{**ANY_TASK, "ResultPath": "$.fell", "Next": "Fell"}],
            "End": True,
        },
        "Fell": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.fell.Cause", "StringMatches": "{*", "Next": "Read"}],
            "Default": "Unexplained",
        },
        "Read": {
            "Type": "Pass",
            "Parameters": {"said.$": "States.StringToJson($.fell.Cause)"},
            "ResultPath": "$.read",
            "Next": "HowItFell",
        },
        "HowItFell": {
            "Type": "Choice",
            "Choices": [{"And": stopped, "Next": "WasStopped"}, {"And": nameable, "Next": "FellAlike"}],
            "Default": "Unexplained",
        },
        "WasStopped": {"Type": "Fail", "Error": LOST, "Cause": "somebody stopped it: nothing more is changed"},
        "FellAlike": {"Type": "Fail", "ErrorPath": error, "CausePath": f"{_SAID}.Cause"},
        "Unexplained": {"Type": "Fail", "Error": FAILED, "CausePath": "$.fell.Cause"},
    }


def named(prefix: str, part: Any) -> Any:
    """Return states under names of their own: a machine refuses a name that it has twice, even within another map."""
    return {prefix + name: _leading(prefix, state) for name, state in part.items()}


def _leading(prefix: str, part: Any) -> Any:
    if isinstance(part, list):
        return [_leading(prefix, one) for one in part]
    if not isinstance(part, dict):
        return part
    leads = ("Next", "Default")
    return {key: prefix + value if key in leads else _leading(prefix, value) for key, value in part.items()}


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


def return_states(settings: FleetSettings) -> dict[str, State]:
    """Return the states that send one stack back, whatever it is changing now, at the fast speed and without a bake.

    The first is `Cancel`. A stack that has not been changed yet is left as it is.
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
