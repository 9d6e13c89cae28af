"""The address of a runbook: a page of the team's, or a dashboard in the account of the alarm."""

from __future__ import annotations

import re
from pathlib import Path

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FleetSettings

RUNBOOKS = REPOSITORY_ROOT / "docs" / "runbooks"
_LINK = re.compile(r"\]\(([a-z0-9-]+)\.md\)")


def page_name(settings: FleetSettings, runbook: str) -> str:
    """Return the name of the dashboard that shows a runbook."""
    return f"peakplan-{settings.name}-runbook-{runbook}"


def runbook_url(settings: FleetSettings, runbook: str) -> str:
    """Return the runbook's URL for notifications, which opens the page itself."""
    if settings.runbooks:
        return f"{settings.runbooks.rstrip('/')}/{runbook}.md"
    console = f"https://{settings.region}.console.aws.amazon.com/cloudwatch/home?region={settings.region}"
    return f"{console}#dashboards/dashboard/{page_name(settings, runbook)}"


def pages(settings: FleetSettings, folder: Path = RUNBOOKS) -> dict[str, str]:
    """Return every runbook's Markdown by its name, with links that lead to the other pages."""
    return {
        path.stem: _LINK.sub(
            lambda link: f"]({runbook_url(settings, link.group(1))})", path.read_text(encoding="utf-8")
        )
        for path in sorted(folder.glob("*.md"))
    }
