"""What is judged: areas of the code, and the tests that judge each."""

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Area:
    sources: tuple[str, ...]  # files and folders' own modules
    tests: tuple[str, ...]
    left_out: str = (
        ""  # tests by their names, as `pytest -k` would: what starts the whole service takes longer than it tells
    )

    def files(self, root: Path = REPOSITORY) -> list[str]:
        """Return the modules, by their paths in the repository."""
        found: list[Path] = []
        for source in self.sources:
            path = root / source
            found += sorted(path.glob("*.py")) if path.is_dir() else [path]
        return [str(path.relative_to(root)) for path in found]


AREAS = {
    "decoding": Area(("service/decoding",), ("tests/decoding", "tests/engines/test_batch.py")),
    "gateway": Area(("service/gateway",), ("tests/gateway",)),
    "scaling": Area(("infra/fleet/scaling.py", "infra/fleet/policies.py"), ("tests/infra/fleet",)),
    "sizing": Area(
        ("infra/fleet/sizing.py", "infra/fleet/demand.py", "infra/fleet/shards.py", "infra/fleet/roofline.py"),
        ("tests/infra/fleet",),
    ),
    "alarms": Area(("infra/fleet/alarms.py", "infra/fleet/alarm_kinds.py"), ("tests/infra/fleet",)),
    "client": Area(
        tuple(f"clients/peakplan_client/{name}.py" for name in ("client", "body", "errors", "plan", "tracing")),
        ("tests/clients",),
        "real_service",
    ),
    "translators": Area(
        (
            "clients/peakplan_client/engines",
            *(
                f"clients/peakplan_client/{name}.py"
                for name in ("mapping", "searching", "translating", "catalogue", "shop")
            ),
        ),
        ("tests/clients",),
        "real_service",
    ),
}
