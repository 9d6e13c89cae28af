"""What a wheel carries beside the command, which has what learns a catalogue and what reports the value of plans: what
it starts for a shop (docs/decisions/0021), the service, its model, the client.

They lie in a folder of the command's own package, so that `service` is a name in our processes alone and in nobody's
site-packages. The fleet, training and benchmarks are run from a checkout.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOUSE = "peakplan/_house"
CARRIED = {
    "service": f"{HOUSE}/service",
    "models": f"{HOUSE}/models",
    "clients/peakplan_client": f"{HOUSE}/peakplan_client",
}


class House(BuildHookInterface[Any]):
    """Adds the folders to a wheel; an editable install points to the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name what else goes into the wheel, and where."""
        if version != "editable":
            build_data["force_include"] |= {str(Path(self.root, folder)): there for folder, there in CARRIED.items()}
