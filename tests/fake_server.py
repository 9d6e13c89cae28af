"""The real service over fake replicas in real processes: `python -m tests.fake_server`, with the service's settings.

FAKE_SECONDS is how long a generation takes, FAKE_FAULTS a folder where tests leave faults (see `EchoModel`). With
FAKE_ANSWER=fixed every question gets the same plan, which is valid for all of them.
"""

import os
import sys

from service.__main__ import main
from tests.fake_models import fake_source


def fake_main() -> int:
    seconds, faults = float(os.environ.get("FAKE_SECONDS", "0.02")), os.environ.get("FAKE_FAULTS", "")
    if os.environ.get("FAKE_ANSWER") == "fixed":
        return main(fake_source("fixed_answer", seconds=seconds))
    return main(fake_source("echo", seconds=seconds, faults=faults))


if __name__ == "__main__":
    sys.exit(fake_main())
