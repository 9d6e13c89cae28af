"""What was measured of a plan on processors, read where `make bench` and `peakplan bench load` wrote it.

docs/figures/decoding.json has an entry for each machine and kernel, in any order; those that go together are of the
processor that docs/figures/serving.json was measured on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """The figures of one processor: under load, with its best kernel, and held to AVX2 where that was tried."""

    serving: dict[str, Any]
    best: dict[str, Any]
    narrow: dict[str, Any] | None

    @property
    def loaded(self) -> str:
        """The load in an entry of decoding.json that keeps every core busy."""
        return f"concurrency_{self.serving['machine']['cores']}"

    @property
    def mean_ms(self) -> float:
        """How long a plan keeps a core busy while all of them plan."""
        mean: float = 1000 * self.serving["machine"]["cores"] / self.serving["capacity"]["plans_per_second"]
        return mean

    @property
    def ground(self) -> str:
        """What that is taken from."""
        machine = self.serving["machine"]
        rate = self.serving["capacity"]["plans_per_second"]
        return f"{rate} plans a second on {machine['cores']} cores of {machine['processor']}"

    @classmethod
    def read(cls, figures: Path) -> Measured:
        """Read the figures of the processor that was measured under load.

        Raises OSError, ValueError, or KeyError where they lack, or the processor's entry with its best kernel does.
        """
        serving = json.loads((figures / "serving.json").read_text(encoding="utf-8"))
        machines = json.loads((figures / "decoding.json").read_text(encoding="utf-8"))["machines"]
        name = serving["machine"]["processor"]
        own = [each for each in machines.values() if each["machine"]["processor"] == name]
        natural = [each for each in own if not each.get("forced")]
        if not natural:
            raise KeyError(f"decoding.json has no entry of {name} with its best kernel, which serving.json is of")
        return cls(serving, natural[0], next((each for each in own if each["kernel"] == "avx2"), None))
