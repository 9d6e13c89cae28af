"""Composite alarms that follow their children, and tell whom they are to tell: moto stores their rules and no more.

As AWS documents it (Create a composite alarm; PutCompositeAlarm): the rule is evaluated when a child changes its state,
so that a composite which was set by hand stays as it is until then. While its suppressor is in ALARM it changes state
and tells nobody; the wait before that is left out.
"""

import ast
import json
import re
from typing import Any

from moto.cloudwatch.models import CloudWatchBackend
from moto.sns.models import sns_backends


def _fires(rule: str, states: dict[str, str]) -> bool:
    """Return what a rule over other alarms says: ALARM(...) and OK(...) with AND, OR, NOT and brackets."""

    def state(found: re.Match[str]) -> str:
        wanted, name = found.groups()
        return str(states.get(name.rpartition(":alarm:")[2]) == wanted)

    said = re.sub(r'(ALARM|OK|INSUFFICIENT_DATA)\("?([^")]+)"?\)', state, rule)
    for word in ("AND", "OR", "NOT"):
        said = re.sub(rf"\b{word}\b", word.lower(), said)
    tree = ast.parse(said.replace("TRUE", "True").replace("FALSE", "False"), mode="eval")
    allowed = (ast.Expression, ast.BoolOp, ast.UnaryOp, ast.And, ast.Or, ast.Not, ast.Constant)
    assert all(isinstance(node, allowed) for node in ast.walk(tree)), said
    return bool(eval(compile(tree, "rule", "eval")))  # nothing but truth values is left


def _follow(backend: CloudWatchBackend) -> None:
    alarms = backend.alarms
    composites = [alarm for alarm in alarms.values() if alarm.rule is not None]
    for _ in composites:  # a composite may be another's child
        for composite in composites:
            states = {name: alarm.state_value for name, alarm in alarms.items()}
            now = "ALARM" if _fires(str(composite.rule), states) else "OK"
            if now != composite.state_value:
                composite.update_state(f"its rule is {now}", "{}", now)
                _tell(backend, composite, now, states)


def _tell(backend: CloudWatchBackend, composite: Any, state: str, states: dict[str, str]) -> None:
    suppressor = str(getattr(composite, "ActionsSuppressor", None) or "").rpartition(":alarm:")[2]
    if states.get(suppressor) == "ALARM":
        return
    topics = sns_backends[backend.account_id][backend.region_name]
    for topic in composite.alarm_actions if state == "ALARM" else composite.ok_actions:
        said = {"AlarmName": composite.name, "NewStateValue": state, "AlarmDescription": composite.description}
        topics.publish(message=json.dumps(said), arn=topic)


def follow_children() -> None:
    """Extend moto in this process."""
    set_state = CloudWatchBackend.set_alarm_state

    def changed(self: CloudWatchBackend, alarm_name: str, reason: str, reason_data: str, state_value: str) -> None:
        set_state(self, alarm_name, reason, reason_data, state_value)
        if self.alarms[alarm_name].rule is None:  # a composite that was set by hand waits for its children
            _follow(self)

    setattr(CloudWatchBackend, "set_alarm_state", changed)  # noqa: B010
