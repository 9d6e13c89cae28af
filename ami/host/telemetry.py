#!/usr/bin/env python3
"""Write the CloudWatch agent's configuration for this host from its environment, and start the agent with it.

Values not known before boot (fleet, cell and log group) are written as ${NAME} in the files of ami/agent. The script
needs only Python's standard library. It has not been run on hardware or in a real account; tests/ami/test_telemetry.py
runs it with an agent of its own.
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
    """Fill in the template of that name and return the path of the result.

    Raise KeyError for a name the host does not know.
    """
    target = FOLDER / name
    target.write_text(Template((TEMPLATES / name).read_text(encoding="utf-8")).substitute(os.environ), encoding="utf-8")
    return target


def main() -> int:
    """Render the files and start the agent.

    Return the agent's exit code, or 2 if /etc/peakplan/host.env lacks a value.
    """
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
