"""What a figure says of its machine."""

from pathlib import Path

import pytest

from rehearsal.bench.machine import processor_time


@pytest.mark.parametrize(
    ("content", "expected"),
    [("cpu  10 2 3 80 1 0 1 3 0 0\ncpu0 5 1 1 40 0 0 0 1 0 0\n", (3, 100)), ("cpu 1 2 3 4\n", (0, 0)), ("", (0, 0))],
    ids=["Linux", "a sandbox's", "empty"],
)
def test_what_the_hypervisor_took_is_read_where_somebody_counts_it(
    tmp_path: Path, content: str, expected: tuple[int, int]
) -> None:
    (tmp_path / "stat").write_text(content, encoding="ascii")

    assert processor_time(tmp_path / "stat") == expected
    assert processor_time(tmp_path / "missing") == (0, 0)
