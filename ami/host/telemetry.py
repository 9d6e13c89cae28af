#!/usr/bin/env python3
"""Writes the CloudWatch agent's configuration for this host, from its environment, and starts the agent with it.

What is not known before boot, the fleet, cell and log group, stands as ${NAME} in the files of ami/agent. Python's
standard library alone. Not run on hardware or in a real account yet; tests/ami/test_telemetry.py runs it with an agent
of its own.
"""

import os
import subprocess
import sys
from pathlib import Path
from string import Template

TEMPLATES = Path(os.environ.get("PEAKPLAN_AGENT_TEMPLATES", "/opt/peakplan/host/agent"))
FOLDER = Path(os.environ.get("PEAKPLAN_AGENT_FOLDER", "/etc/peakplan"))
CONTROL = os.environ.get("PEAKPLAN_AGENT_CONTROL", "/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl")
AGENT, SCRAPES = "cloudwatch-agent.json", "prometheus.yaml"


def render(name: str) -> Path:
    """Fill in a template of that name; answers where it lies. Raises KeyError for a name the host does not know."""
    target = FOLDER / name
    target.write_text(Template((TEMPLATES / name).read_text(encoding="utf-8")).substitute(os.environ), encoding="utf-8")
    return target


def main() -> int:
    """Render and start; the agent's own code, or 2 where /etc/peakplan/host.env says too little."""
    try:
        render(SCRAPES)
        configuration = render(AGENT)
    except KeyError as unknown:
        print(f"/etc/peakplan/host.env does not say {unknown.args[0]}: see infra/constructs/host.py", file=sys.stderr)
        return 2
    command = [CONTROL, "-a", "fetch-config", "-m", "ec2", "-s", "-c", f"file:{configuration}"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
