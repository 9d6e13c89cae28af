"""`python -m rehearsal.stack.light_host`: the real service over replicas that take a recorded time and run no model.

Gateway, queue, admission, cache, replica processes and telemetry are the service's own; only the model is not. A
replica is busy for as long as one took for a prompt of that length on the machine that `peakplan bench load` measured,
times `STACK_TIMES`; `STACK_SLOWDOWN` is a file that a rehearsal writes another factor into.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from rehearsal.stack.recorded_model import RecordedTimes
from service.__main__ import main
from service.engines.worker.messages import ModelSource


def light_main(environment: Mapping[str, str] = os.environ) -> int:
    """Serve with the times of the environment; return 1 with a line on standard error where there are none."""
    try:
        times = float(environment.get("STACK_TIMES", "1"))
        RecordedTimes.read(times=times)
    except (OSError, ValueError, KeyError) as error:
        print(f"no light host: {error}. `peakplan bench load` records times; STACK_TIMES is a factor", file=sys.stderr)
        return 1
    arguments = {"times": times, "slowdown": environment.get("STACK_SLOWDOWN", "")}
    return main(ModelSource("rehearsal.stack.recorded_model:recorded", arguments, version="recorded", forkable=True))


if __name__ == "__main__":
    sys.exit(light_main())
