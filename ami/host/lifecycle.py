#!/usr/bin/env python3
"""Move this host's Auto Scaling lifecycle on: `ready` once it answers plans, `drain` when it leaves, `wait` alone.

This script needs only Python's standard library and the AWS CLI. It has not been run in a real account;
tests/ami/test_lifecycle.py runs it against a metadata server and a CLI of its own.
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
# These are Auto Scaling's target lifecycle states, which say what it wants this host to become.
SERVING, WARMED, TERMINATED = {"InService"}, {"Warmed:Stopped", "Warmed:Running", "Warmed:Hibernated"}, {"Terminated"}
PROOF = {"query": "nike running shoes under $100", "deadline_ms": 2000}
MODELS_OWN = {"model", "cache"}  # A plan made by rules does not prove that the model works.
UPTIME = Path("/proc/uptime")
# The first of `ready` and `drain` to see that this host is wanted in service writes this file: Auto Scaling may
# want it back before the other has looked. systemd keeps the folder until the next boot.
SERVED = Path(os.environ.get("RUNTIME_DIRECTORY", "/run/peakplan")) / "in-service"


class LifecycleError(RuntimeError):
    """A lifecycle request that AWS refused. systemd runs the unit again."""


def metadata(path: str) -> str:
    """Return a value of the instance metadata service (IMDSv2), or "" where it has none.

    Raise OSError if it is unreachable.
    """
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
    """Return what keeps this host from service, in the service's own words, or "" once its model has made a plan."""
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
    """Return once the service has made a plan.

    There is no timeout here: the lifecycle hook's timeout ends a slow host.
    """
    said = ""
    while reason := why_not():
        if reason != said:
            print(f"not ready: {reason}", flush=True)
            said = reason
        time.sleep(PAUSE_SECONDS)
    print(f"ready {UPTIME.read_text(encoding='ascii').split()[0]} s after boot", flush=True)


def complete(hook: str) -> None:
    """Let the lifecycle action of `hook` continue.

    Raise LifecycleError when AWS refuses, OSError when the CLI cannot run.
    """
    command = ["aws", "autoscaling", "complete-lifecycle-action", "--lifecycle-action-result", "CONTINUE"]
    command += ["--lifecycle-hook-name", hook, "--instance-id", metadata("instance-id")]
    command += ["--auto-scaling-group-name", os.environ["PEAKPLAN_AUTO_SCALING_GROUP"]]
    done = subprocess.run(
        [*command, "--region", metadata("placement/region")], capture_output=True, text=True, check=False
    )
    if "No active Lifecycle Action" in done.stderr:  # It is complete already: this host was only restarted.
        return
    if done.returncode != 0:
        raise LifecycleError(f"the lifecycle action of {hook} does not go on: {done.stderr.strip()}")


def ready() -> None:
    """Prove readiness, then complete the launch, which leads into service or into the warm pool."""
    wait()
    target = metadata("autoscaling/target-lifecycle-state")
    remember(target)
    if target in SERVING | WARMED:
        complete(os.environ["PEAKPLAN_LAUNCH_HOOK"])


def remember(target: str) -> None:
    """Note, until the next boot, that this host was wanted in service, if that is its target state."""
    if target in SERVING:
        SERVED.touch()


def is_leaving(target: str) -> bool:
    """Return whether a host with this target state must leave: terminate, or return to the warm pool.

    A host that was never in service and is to be warmed is still being launched, so it is not leaving.
    """
    remember(target)
    return target in TERMINATED or (target in WARMED and SERVED.exists())


def drain() -> None:
    """Stop the service once this host must leave, then let the host go.

    The service keeps answering while the load balancer deregisters the host.

    The same hook holds a host that terminates (Terminating:Wait) and one that rejoins the pool (Warmed:Pending:Wait).
    """
    while not is_leaving(metadata("autoscaling/target-lifecycle-state")):
        time.sleep(PAUSE_SECONDS)
    stopped = subprocess.run(["systemctl", "stop", "peakplan.service"], check=False).returncode
    if stopped != 0:
        print(f"peakplan.service did not stop in an orderly way ({stopped}); the host goes all the same", flush=True)
    complete(os.environ["PEAKPLAN_TERMINATE_HOOK"])


def main(words: list[str]) -> int:
    """Run `lifecycle.py ready|drain|wait`.

    Return 1, with the reason printed, when AWS or the metadata service refuses.
    """
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
