#!/usr/bin/env python3
"""Moves this host's Auto Scaling lifecycle on: `ready` once it answers plans, `drain` when it leaves, `wait` alone.

Python's standard library and the AWS CLI, nothing else. Not run in a real account yet; tests/ami/test_lifecycle.py runs
it against a metadata server and a CLI of its own.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

METADATA = os.environ.get("PEAKPLAN_METADATA_URL", "http://169.254.169.254")
SERVICE = os.environ.get("PEAKPLAN_SERVICE_URL", "http://127.0.0.1:8080")
PAUSE_SECONDS = float(os.environ.get("PEAKPLAN_PAUSE_SECONDS", "0.5"))
# Auto Scaling's target lifecycle states: what it wants this host to become.
SERVING, WARMED, TERMINATED = {"InService"}, {"Warmed:Stopped", "Warmed:Running", "Warmed:Hibernated"}, {"Terminated"}
PROOF = {"query": "nike running shoes under $100", "deadline_ms": 2000}
MODELS_OWN = {"model", "cache"}  # a plan that rules made proves nothing
UPTIME = Path("/proc/uptime")
# Written once this host is in service; systemd keeps the folder until the next boot.
SERVED = Path(os.environ.get("RUNTIME_DIRECTORY", "/run/peakplan")) / "in-service"


class LifecycleError(RuntimeError):
    """What AWS refused; systemd tries again."""


def metadata(path: str) -> str:
    """A value of the instance metadata service (IMDSv2); empty where it has none. Raises OSError."""
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


def why_not() -> str:
    """What keeps this host from service, in the service's own words; "" once its model has made a plan."""
    asks = urllib.request.Request(
        f"{SERVICE}/plan", data=json.dumps(PROOF).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(f"{SERVICE}/readyz", timeout=5):
            pass
        with urllib.request.urlopen(asks, timeout=5) as answer:
            source = json.load(answer)["source"]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(500).decode(errors='replace')}"
    except (OSError, ValueError, KeyError) as error:
        return str(error)
    return "" if source in MODELS_OWN else f"a plan came from its {source}"


def wait() -> None:
    """Return when the service has planned. Whoever is impatient, the hook's timeout, ends the host instead."""
    said = ""
    while reason := why_not():
        if reason != said:
            print(f"not ready: {reason}", flush=True)
            said = reason
        time.sleep(PAUSE_SECONDS)
    print(f"ready {UPTIME.read_text(encoding='ascii').split()[0]} s after boot", flush=True)


def complete(hook: str) -> None:
    """Let the lifecycle action of `hook` continue. Raises LifecycleError when AWS refuses, OSError."""
    command = ["aws", "autoscaling", "complete-lifecycle-action", "--lifecycle-action-result", "CONTINUE"]
    command += ["--lifecycle-hook-name", hook, "--instance-id", metadata("instance-id")]
    command += ["--auto-scaling-group-name", os.environ["PEAKPLAN_AUTO_SCALING_GROUP"]]
    done = subprocess.run(
        [*command, "--region", metadata("placement/region")], capture_output=True, text=True, check=False
    )
    if "No active Lifecycle Action" in done.stderr:  # done before: this host has only been started again
        return
    if done.returncode != 0:
        raise LifecycleError(f"the lifecycle action of {hook} does not go on: {done.stderr.strip()}")


def ready() -> None:
    """Prove readiness, then continue the launch: into service, or into the warm pool, which counts as a launch too."""
    wait()
    if metadata("autoscaling/target-lifecycle-state") in SERVING | WARMED:
        complete(os.environ["PEAKPLAN_LAUNCH_HOOK"])


def is_leaving(target: str) -> bool:
    """Whether a host with this target state is to leave: to end, or back to the warm pool that it once came from.

    A host that was never in service and is to be warmed is only on its way there.
    """
    if target in SERVING:
        SERVED.touch()
    return target in TERMINATED or (target in WARMED and SERVED.exists())


def drain() -> None:
    """Once this host is to leave: stop the service, which serves on while the balancer leaves, then let the host go.

    The same hook holds a host that ends (Terminating:Wait) and one that goes back to the pool (Warmed:Pending:Wait).
    """
    while not is_leaving(metadata("autoscaling/target-lifecycle-state")):
        time.sleep(PAUSE_SECONDS)
    stopped = subprocess.run(["systemctl", "stop", "peakplan.service"], check=False).returncode
    if stopped != 0:
        print(f"peakplan.service did not stop in an orderly way ({stopped}); the host goes all the same", flush=True)
    complete(os.environ["PEAKPLAN_TERMINATE_HOOK"])


def main(words: list[str]) -> int:
    """`lifecycle.py ready|drain|wait`; 1 with the reason when AWS or the metadata service refuses."""
    commands = {"ready": ready, "drain": drain, "wait": wait}
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: lifecycle.py {'|'.join(commands)}", file=sys.stderr)
        return 2
    try:
        commands[words[0]]()
    except KeyError as unknown:
        print(f"/etc/peakplan/host.env does not say {unknown.args[0]}: see infra/constructs/host.py", file=sys.stderr)
        return 1
    except (LifecycleError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
