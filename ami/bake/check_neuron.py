#!/usr/bin/env python3
"""Refuses to bake an image whose Neuron driver, runtime and devices do not fit the pinned SDK.

`check_neuron.py SDK CONTAINER`. The AMIs that AWS calls "latest" carry the newest driver, and a driver of SDK 2.31
refuses the runtime of SDK 2.28: nrt_init() fails at the first request, on a fleet instead of on the bench. Python's
standard library alone. Not run on hardware; tests/ami/test_bake.py runs it with programs of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PINS = Path(os.environ.get("PEAKPLAN_NEURON_PINS", Path(__file__).with_name("neuron-pins.json")))
DEVICES = Path(os.environ.get("PEAKPLAN_DEVICES", "/dev"))
NEURON_LS = os.environ.get("PEAKPLAN_NEURON_LS", "/opt/aws/neuron/bin/neuron-ls")


class NeuronMismatchError(RuntimeError):
    """What does not fit; the message says what to take instead."""


def said(*command: str) -> str:
    """What a program wrote to standard output. Raises NeuronMismatchError with its last words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NeuronMismatchError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NeuronMismatchError(f"`{' '.join(command)}` failed: {last}")
    return done.stdout.strip()


def numbers(version: str, count: int = 2) -> tuple[int, ...]:
    """The first numbers of a version such as 2.26.10.0. Raises NeuronMismatchError."""
    try:
        return tuple(int(part) for part in version.split(".")[:count])
    except ValueError:
        raise NeuronMismatchError(f"{version!r} is no version") from None


def check(sdk: str, container: str) -> dict[str, object]:
    """What was found, all of it fitting. Raises NeuronMismatchError."""
    pins = json.loads(PINS.read_text(encoding="utf-8"))["sdk"]
    if sdk not in pins:
        raise NeuronMismatchError(f"SDK {sdk} is not in {PINS.name}: it knows {', '.join(pins)}")
    driver = said("modinfo", "-F", "version", "neuron")
    if numbers(driver, 3) < numbers(pins[sdk]["oldest_driver"], 3):
        raise NeuronMismatchError(
            f"driver {driver} is older than {pins[sdk]['oldest_driver']}, which mends kernel 6.18: take the newest "
            f"base image whose description says Neuron SDK {sdk}"
        )
    if numbers(driver) > numbers(pins[sdk]["newest_driver"]):
        raise NeuronMismatchError(
            f"driver {driver} is too new for SDK {sdk}, whose runtime it refuses: take a base image whose description "
            f"says Neuron SDK {sdk}, not one that is called latest"
        )
    devices = sorted(path.name for path in DEVICES.glob("neuron[0-9]*"))
    if not devices:
        raise NeuronMismatchError(f"no {DEVICES}/neuron0: bake on an inf2 or trn1 instance")
    said(NEURON_LS, "--json-output")  # the driver answers
    query = ("dpkg-query", "--show", "--showformat", "${Version}", "aws-neuronx-runtime-lib")
    runtime = said("docker", "run", "--rm", "--pull", "never", "--entrypoint", query[0], container, *query[1:])
    if numbers(runtime) != numbers(pins[sdk]["runtime"]):
        raise NeuronMismatchError(
            f"the container's runtime is {runtime}, and SDK {sdk} has {pins[sdk]['runtime']}: {container} is not of it"
        )
    return {"sdk": sdk, "driver": driver, "runtime": runtime, "devices": devices}


def main(words: list[str]) -> int:
    """0 and what was found as JSON, or 1 and what does not fit."""
    if len(words) != 2:
        print("usage: check_neuron.py SDK CONTAINER", file=sys.stderr)
        return 2
    try:
        print(json.dumps(check(*words)))
    except NeuronMismatchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
