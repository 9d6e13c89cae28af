"""The state machine of a load test, in Amazon States Language: minute by minute, and no further once harm is seen."""

from __future__ import annotations

from typing import Any

from infra.fleet.event_load import MINUTE, EventLoad
from infra.fleet.rollout_states import State, task

HARMED = "FleetHarmed"


def definition(load: EventLoad, function: str) -> State:
    """Return the machine that starts `function` (an ARN) once for each worker and minute of its input."""
    minute: State = {
        "StartAt": "Wait",
        "States": {
            "Wait": {"Type": "Wait", "TimestampPath": "$.minute.sent_at", "Next": "Look"},
            "Look": {
                **task(
                    "cloudwatch:describeAlarms",
                    {"AlarmNames": load.alarms, "AlarmTypes": ["CompositeAlarm", "MetricAlarm"], "StateValue": "ALARM"},
                ),
                "ResultSelector": {
                    "metric.$": "States.ArrayLength($.MetricAlarms)",
                    "composite.$": "States.ArrayLength($.CompositeAlarms)",
                },
                "ResultPath": "$.fired",
                "Next": "IsHarmed",
            },
            "IsHarmed": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": f"$.fired.{kind}", "NumericGreaterThan": 0, "Next": "Harmed"}
                    for kind in ("metric", "composite")
                ],
                "Default": "Send",
            },
            "Harmed": {
                "Type": "Fail",
                "Error": HARMED,
                "Cause": f"one of these fired, so nothing more is sent: {', '.join(load.alarms)}",
            },
            "Send": _send(load, function),
        },
    }
    return {
        "Comment": f"Loads {load.settings.name} for {load.minutes} minutes at most",
        "TimeoutSeconds": load.timeout_seconds,
        "StartAt": "Minutes",
        "States": {
            "Minutes": {
                "Type": "Map",
                "ItemsPath": "$.minutes",
                "ItemSelector": {"minute.$": "$$.Map.Item.Value", "workers.$": "$.workers"},
                "MaxConcurrency": 1,
                "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **minute},
                "ResultPath": None,
                "End": True,
            }
        },
    }


def _send(load: EventLoad, function: str) -> State:
    """Return the state that starts every worker of a minute and waits for none: the next minute overlaps with it."""
    payload: dict[str, Any] = {
        "worker.$": "$.worker",
        "starts_at.$": "$.minute.starts_at",
        "begins.$": "$.minute.begins",
        "ends.$": "$.minute.ends",
        "seconds": MINUTE,
        "deadline_ms": load.settings.slo.p99_ms,
        "fresh": load.fresh,
    }
    invoke = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function, "InvocationType": "Event", "Payload": payload},
        "Retry": [{"ErrorEquals": ["States.TaskFailed"], "IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 1}],
        "ResultPath": None,
        "End": True,
    }
    return {
        "Type": "Map",
        "ItemsPath": "$.workers",
        "ItemSelector": {"minute.$": "$.minute", "worker.$": "$$.Map.Item.Value"},
        "MaxConcurrency": 0,
        "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "Start", "States": {"Start": invoke}},
        "ResultPath": None,
        "End": True,
    }
