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


def _modules(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.py" for name in names.split())


AREAS = {
    # The loop, what proposes and what verifies; "model" is what computes for it.
    "decoding": Area(
        _modules(
            "service/decoding",
            "constraint generation heads interruption kv_cache lm_head medusa prefill_draft prompt_tags proposer "
            "statistics target tree verification",
        ),
        _modules(
            "tests/decoding",
            "test_batch test_constraint test_generation test_heads test_interruption test_kv_cache test_lm_head "
            "test_medusa test_pending test_prefill_draft test_prompt_tag_bounds test_prompt_tags test_proposer "
            "test_trace test_tree test_verification",
        ),
    ),
    "model": Area(
        _modules(
            "service/decoding",
            "linear llama llama_config native_llama native_products prefill_head",
        ),
        _modules(
            "tests/decoding",
            "test_linear test_llama test_native_llama test_native_products test_prefill_head",
        ),
    ),
    "gateway": Area(("service/gateway",), ("tests/gateway",)),
    "scaling": Area(("infra/fleet/scaling.py", "infra/fleet/policies.py"), ("tests/infra/fleet",)),
    "sizing": Area(
        ("infra/fleet/sizing.py", "infra/fleet/demand.py", "infra/fleet/shards.py", "infra/fleet/roofline.py"),
        ("tests/infra/fleet",),
    ),
    "alarms": Area(
        ("infra/fleet/alarms.py", "infra/fleet/alarm_kinds.py"),
        ("tests/infra/fleet/test_alarms.py", "tests/infra/fleet/test_alarm_table.py"),
    ),
    "client": Area(
        _modules("clients/peakplan_client", "answering batch body calls client errors events experiments plan tracing"),
        ("tests/clients",),
        "real_service",
    ),
    "translators": Area(
        (
            "clients/peakplan_client/engines",
            *_modules("clients/peakplan_client", "catalogue indexing mapping searching shop translating wishes"),
        ),
        ("tests/clients",),
        "real_service",
    ),
}
