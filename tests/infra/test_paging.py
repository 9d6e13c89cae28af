"""A page reaches somebody: by a child alarm, as AWS would have it tested; a ticket wakes nobody.

A composite that is set by hand keeps that state until one of its children changes, so it is no test.
"""

import json
from collections.abc import Iterator

import pytest

from infra.fleet.alarm_kinds import MetricAlarm, Severity
from infra.fleet.alarms import alarm_name, cell_alarms
from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow


class Pager:
    """A queue that hears what the topic of pages says, and the hands that set alarms."""

    def __init__(self, deployment: Deployment) -> None:
        self._watching, self._queues = deployment.client("cloudwatch"), deployment.client("sqs")
        self._queue = self._queues.create_queue(QueueName="pager")["QueueUrl"]
        asked = {"QueueUrl": self._queue, "AttributeNames": ["QueueArn"]}
        arn = self._queues.get_queue_attributes(**asked)["Attributes"]["QueueArn"]
        topics = deployment.client("sns")
        (pages,) = [each["TopicArn"] for each in topics.list_topics()["Topics"] if each["TopicArn"].endswith("-pages")]
        self._subscription = topics.subscribe(TopicArn=pages, Protocol="sqs", Endpoint=arn)["SubscriptionArn"]

    def set(self, key: str, state: str) -> None:
        told = {"StateReason": "a test", "StateReasonData": "{}"}
        self._watching.set_alarm_state(AlarmName=alarm_name("dev", "cell-1", key), StateValue=state, **told)

    def heard(self) -> list[tuple[str, str, str]]:
        """The messages since the last time: alarm, state, description."""
        found = []
        while messages := self._queues.receive_message(QueueUrl=self._queue).get("Messages", []):
            for message in messages:
                said = json.loads(json.loads(message["Body"])["Message"])
                found.append((said["AlarmName"], said["NewStateValue"], said["AlarmDescription"]))
                self._queues.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return found


@pytest.fixture
def pager(standing_fleet: Deployment) -> Iterator[Pager]:
    made = Pager(standing_fleet)
    for key in ("deploying", "saturation"):
        made.set(key, "OK")
    made.heard()
    yield made
    for key in ("deploying", "saturation"):
        made.set(key, "OK")


PAGE = alarm_name("dev", "cell-1", "page")


def test_a_child_alarm_pages_and_its_end_is_told(pager: Pager) -> None:
    pager.set("saturation", "ALARM")
    ((name, state, description),) = pager.heard()
    assert (name, state) == (PAGE, "ALARM")
    assert "runbook-page" in description
    pager.set("saturation", "OK")
    assert [said[:2] for said in pager.heard()] == [(PAGE, "OK")]


def test_a_page_that_is_set_by_hand_stays_until_a_child_changes(pager: Pager) -> None:
    pager.set("page", "ALARM")
    assert pager.heard() == [], "nothing was tested by this"
    pager.set("saturation", "OK")
    assert [said[:2] for said in pager.heard()] == [(PAGE, "OK")]


def test_every_alarm_that_pages_reaches_the_pager(pager: Pager, standing_fleet: Deployment) -> None:
    paging = [alarm for alarm in cell_alarms(standing_fleet.settings) if alarm.severity is Severity.PAGE]
    metric = [alarm.key for alarm in paging if isinstance(alarm, MetricAlarm)]
    assert "saturation" in metric
    for key in metric:
        pager.set(key, "ALARM")
        assert [said[:2] for said in pager.heard()] == [(PAGE, "ALARM")], key
        pager.set(key, "OK")
        pager.heard()


def test_a_ticket_wakes_nobody(pager: Pager, standing_fleet: Deployment) -> None:
    tickets = [alarm for alarm in cell_alarms(standing_fleet.settings) if alarm.severity is Severity.TICKET]
    for alarm in tickets:
        if isinstance(alarm, MetricAlarm):
            pager.set(alarm.key, "ALARM")
            pager.set(alarm.key, "OK")
    assert pager.heard() == []
