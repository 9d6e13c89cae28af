#!/usr/bin/env python3
"""Moves this host's Auto Scaling lifecycle on: `ready` once it answers plans, `drain` before it dies, `wait` alone.

Python's standard library and the AWS CLI, nothing else. Not run in a real account yet; tests/ami/test_lifecycle.py runs
it against a metadata server and a CLI of its own.
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

METADATA = os.environ.get("PEAKPLAN_METADATA_URL", "http://169.254.169.254")
SERVICE = os.environ.get("PEAKPLAN_SERVICE_URL", "http://127.0.0.1:8080")
PAUSE_SECONDS = float(os.environ.get("PEAKPLAN_PAUSE_SECONDS", "2"))
# Auto Scaling's target lifecycle states: what it wants this host to become.
SERVING, WARMED, TERMINATED = {"InService"}, {"Warmed:Stopped", "Warmed:Running", "Warmed:Hibernated"}, {"Terminated"}


def metadata(path: str) -> str:
    """A value of the instance metadata service (IMDSv2); empty where it has none."""
    asks = urllib.request.Request(
        f"{METADATA}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    try:
        with urllib.request.urlopen(asks, timeout=5) as answer:
            token = answer.read().decode()
        asks = urllib.request.Request(
            f"{METADATA}/latest/meta-data/{path}", headers={"X-aws-ec2-metadata-token": token}
        )
        with urllib.request.urlopen(asks, timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return ""
        raise


def is_ready() -> bool:
    """Whether the service says that it would answer a plan now, which a real inference proved."""
    try:
        with urllib.request.urlopen(f"{SERVICE}/readyz", timeout=5) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def wait() -> None:
    """Return when the service is ready. Whoever is impatient, the hook's timeout, ends the host instead."""
    while not is_ready():
        time.sleep(PAUSE_SECONDS)


def complete(hook: str) -> None:
    """Let the lifecycle action of `hook` continue. Raises CalledProcessError when AWS refuses; systemd tries again."""
    command = ["aws", "autoscaling", "complete-lifecycle-action", "--lifecycle-action-result", "CONTINUE"]
    command += ["--lifecycle-hook-name", hook, "--instance-id", metadata("instance-id")]
    command += ["--auto-scaling-group-name", os.environ["PEAKPLAN_AUTO_SCALING_GROUP"]]
    subprocess.run([*command, "--region", metadata("placement/region")], check=True)


def ready() -> None:
    """Prove readiness, then continue the launch: into service, or into the warm pool, which counts as a launch too."""
    wait()
    if metadata("autoscaling/target-lifecycle-state") in SERVING | WARMED:
        complete(os.environ["PEAKPLAN_LAUNCH_HOOK"])


def drain() -> None:
    """Once this host is to go: give requests in flight their time, stop the service, continue the termination."""
    while metadata("autoscaling/target-lifecycle-state") not in TERMINATED:
        time.sleep(PAUSE_SECONDS)
    # The balancer stopped sending when the host left the group; what it sent before gets this long.
    time.sleep(float(os.environ.get("PEAKPLAN_DRAIN_SECONDS", "30")))
    subprocess.run(["systemctl", "stop", "peakplan.service"], check=True)
    complete(os.environ["PEAKPLAN_TERMINATE_HOOK"])


def main(words: list[str]) -> int:
    """`lifecycle.py ready|drain|wait`."""
    commands = {"ready": ready, "drain": drain, "wait": wait}
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: lifecycle.py {'|'.join(commands)}", file=sys.stderr)
        return 2
    commands[words[0]]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
