"""`python -m infra.operations.deploying --fleet NAME --cell cell-1 -- COMMAND` runs a command with its cell marked.

Every minute it publishes DeployInProgress, which lets the cell's page alarm tell a deploy's noise from harm. Then the
cell bakes: the marker goes on for `--bake` minutes, and the command fails as soon as one of the alarms fires that
stop a deploy (`gates` in infra/fleet/alarms.py), so that whatever deploys cell after cell
(infra/operations/rollout.py) stops there. A deploy that dies silences nothing: its marker is soon forgotten. The exit
code is 1 where the bake saw harm, 2 where AWS cannot be reached, else the command's own. This has not run in a real
account.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.fleet.alarms import gates
from infra.fleet.metrics import metrics
from infra.fleet.release_arms import Query
from infra.fleet.rollout_arms import WORSE
from infra.operations.repeating import repeated

MARKER = "DeployInProgress"
SECONDS = 60.0  # between markers; the alarm tolerates two lost ones


class HarmSeenError(Exception):
    """An alarm on harm that fired while its cell baked. The message is written for operators."""


def publish(cloudwatch: Any, fleet: str, cell: str) -> None:
    """Publish one marker. Raise botocore's errors where CloudWatch refuses or cannot be reached."""
    values = {"Fleet": fleet, "Cell": cell}
    (names,) = metrics().metric(MARKER).dimensions
    cloudwatch.put_metric_data(
        Namespace=metrics().namespace(MARKER),
        MetricData=[
            {
                "MetricName": MARKER,
                "Dimensions": [{"Name": name, "Value": values[name]} for name in names],
                "Value": 1,
                "Unit": metrics().metric(MARKER).unit,
            }
        ],
    )


@contextmanager
def marked(cloudwatch: Any, fleet: str, cell: str, seconds: float = SECONDS) -> Iterator[None]:
    """Publish the marker now and every `seconds` until the end. Raise only the first one's failure."""
    publish(cloudwatch, fleet, cell)

    def again() -> bool:
        try:
            publish(cloudwatch, fleet, cell)
        except (BotoCoreError, ClientError) as error:  # a lost marker must not end a deploy half way
            print(f"{cell}: marker lost: {error}", file=sys.stderr)
        return True

    with repeated(again, seconds):
        yield


def bake(
    cloudwatch: Any,
    fleet: str,
    cell: str,
    minutes: float,
    sleep: Callable[[float], None] = time.sleep,
    queries: Callable[[], list[Query]] = list,
) -> None:
    """Watch the alarms that stop a deploy for `minutes`. Raise HarmSeenError as soon as one fires.

    `queries` are those of release_arms.py at each look, with which both releases are compared since the bake began.
    Alarms are deployed after the cells that they watch, so a fleet's first deploy has none. It says so without waiting.
    """
    names = gates(fleet, cell)
    began, end = datetime.now(UTC), time.monotonic() + 60 * minutes
    while True:
        found = cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"]
        if not found:
            print(f"{cell}: no alarm {names[0]} yet, as in a fleet's first deploy: nothing to watch", file=sys.stderr)
            return
        if fired := [alarm["AlarmName"] for alarm in found if alarm["StateValue"] == "ALARM"]:
            raise HarmSeenError(
                f"{cell}: {' and '.join(fired)} fired, so no further cell is deployed. "
                "See docs/runbooks/deploy-health.md"
            )
        if shoppers_lose(cloudwatch, queries(), began):
            raise HarmSeenError(f"{cell}: {WORSE}")
        if (left := end - time.monotonic()) <= 0:
            return
        sleep(min(15.0, left))


def shoppers_lose(cloudwatch: Any, asked: list[Query], began: datetime) -> bool:
    """Return whether shoppers click or buy less with the new release, beyond chance, since then.

    What cannot be read tells nothing: the alarms on shoppers watch, too.
    """
    now = datetime.now(UTC)
    if not asked or now - began < timedelta(seconds=1):  # CloudWatch reads no time that is empty
        return False
    try:
        found = cloudwatch.get_metric_data(
            MetricDataQueries=asked, StartTime=began, EndTime=now, ScanBy="TimestampDescending"
        )
    except (BotoCoreError, ClientError) as error:
        print(f"the two releases cannot be compared: {error}", file=sys.stderr)
        return False
    return any(each["Values"][0] > 0 for each in found["MetricDataResults"] if each["Values"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command under the marker, then bake."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--cell", required=True)
    parser.add_argument("--region", default=None, help="the fleet's; AWS_REGION where it is left out")
    parser.add_argument("--bake", type=float, default=10.0, metavar="MINUTES", help="how long to watch afterwards")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        cloudwatch = boto3.client("cloudwatch", region_name=given.region)
        with marked(cloudwatch, given.fleet, given.cell):
            code = subprocess.run(given.command, check=False).returncode
            if code == 0:
                bake(cloudwatch, given.fleet, given.cell, given.bake)
    except HarmSeenError as harm:
        print(harm, file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"{given.cell}: CloudWatch cannot be reached as this user: {error}", file=sys.stderr)
        return 2
    except FileNotFoundError:
        print(f"{given.command[0]}: no such command", file=sys.stderr)
        return 127
    return code


if __name__ == "__main__":
    sys.exit(main())
