"""The executions that a rollout starts of its own state machine, one for each stack that it moves or sends back.

An execution's history ends at 25,000 events (AWS Step Functions developer guide, Service quotas), and hours of looking
at six cells are more than that. Each stack's own execution has a history of its own. They run the same machine, whose
first state asks which way its input wants, so that whoever stops what the machine runs stops all of it.
"""

from __future__ import annotations

from typing import Any

from infra.fleet.rollout_states import ANY_TASK, FAILED, LOST, State

# An execution of a stack's own is told its way by its input; one without a way is the rollout itself.
MOVES, RETURNS = "move", "return"
_RUN = "arn:aws:states:::states:startExecution.sync:2"
_SAID = "$.read.said"  # what DescribeExecution says of one that failed: the cause of the task's failure


def way(mode: str, then: str) -> State:
    """Return the choice of an execution that was started for a stack."""
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
    """Return the states that run one execution, and fail as it failed.

    The error of the task is always States.TaskFailed; its cause is what DescribeExecution says, as JSON. An execution
    that somebody stopped has lost its purpose as one has that lost the lock: nothing more is changed.
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
