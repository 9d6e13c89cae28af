"""What the account cannot do by itself is refused before anything is handed over to it."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from infra.operations.deployment_state import DeploymentState
from infra.operations.handover import Handover, HandoverError
from tests.infra.fleet.fleets import dev_fleet


def untouched(*_: Any) -> NoReturn:
    raise AssertionError("nothing may be changed")


def test_a_bake_that_one_execution_s_history_does_not_hold_is_refused() -> None:
    handover = Handover(dev_fleet(), DeploymentState(release="ami-00000001"), untouched, Path("nowhere"))
    lock: Any = None
    with pytest.raises(HandoverError, match=r"1440 minutes .* \(25,000 events\): lower rollout\.canary_bake_minutes"):
        handover.run((), untouched, lock, (24 * 60.0, 5.0))
