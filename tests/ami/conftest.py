from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ami.host import Host, present
from tests.ami.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Programs(folder)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with present(tmp_path) as host:
        yield host
