"""Peakplan is run from its checkout: an editable install is all that pip may make of it (docs/decisions/0021)."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CheckoutOnly(BuildHookInterface[Any]):
    """Refuses to build a wheel that would carry none of the code."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises SystemExit for any wheel but that of an editable install."""
        del build_data
        if version != "editable":
            raise SystemExit(
                "Peakplan is an application that runs from its checkout, so there is no wheel of it. "
                "Run `make serve` there, or `pip install -e '.[service,torch]'` (docs/decisions/0021)."
            )
