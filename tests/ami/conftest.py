from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.node import use_packaged_node
from tests.ami.programs import Host, Programs, present

use_packaged_node()  # before a test imports the CDK


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Programs(folder)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with present(tmp_path) as host:
        yield host
