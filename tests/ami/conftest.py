from pathlib import Path

import pytest

from tests.ami.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Programs(folder)
