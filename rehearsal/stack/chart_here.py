"""Renders the Helm chart by Helm's own library, and validates what comes of it by Kubernetes's own schemas.

`.venv/bin/python rehearsal/stack/chart_here.py '{"scaling": {"kind": "hpa"}}'` prints the manifests of those
values as JSON, or returns 1 where `helm lint` or a schema finds fault. It runs in the stack's environment, which has
both, and imports nothing of this repository. Resources that Kubernetes has no schema of (KEDA's, the Prometheus
Operator's) are rendered alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHART = Path(__file__).parent / "chart"
KUBERNETES = "1.30"  # the oldest that Chart.yaml admits
_OTHERS = ("keda.sh/", "monitoring.coreos.com/")


def main() -> int:
    """Lint, render, validate, print."""
    import helm_python  # type: ignore[import-not-found, unused-ignore]
    import yaml

    values = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    report = helm_python.lint(CHART, values, strict=True, kube_version=f"v{KUBERNETES}.0")
    faults = [str(each) for each in report["messages"] if each["severity"] > 1] + report["errors"]
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values, name="shop", namespace="planner")
    manifests = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    faults += [fault for each in manifests for fault in _faults(each)]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    print(json.dumps(manifests))
    return 0


def _faults(manifest: dict[str, Any]) -> Iterator[str]:
    import kubernetes_validate  # type: ignore[import-not-found, unused-ignore]

    if manifest["apiVersion"].startswith(_OTHERS):
        return
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {error.message}"


if __name__ == "__main__":
    sys.exit(main())
