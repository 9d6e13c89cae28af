"""The CDK app: reads one fleet file, composes the stacks; nothing else. `npx cdk synth -c fleet=dev`, the default."""

import sys

from infra.fleet.__main__ import fleet_file
from infra.fleet.settings import FleetFileError, FleetSettings, upcoming_events_only
from infra.node import use_packaged_node

use_packaged_node()

from aws_cdk import App  # noqa: E402  # jsii starts its Node at this import

from infra.stacks import compose  # noqa: E402


def main() -> int:
    """Synthesise the fleet that `-c fleet=` or cdk.json names; 2 when its file cannot be used."""
    app = App(analytics_reporting=False, stack_traces=False)
    try:
        settings = upcoming_events_only(FleetSettings.from_yaml(fleet_file(str(app.node.get_context("fleet")))))
        compose(app, settings)
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return 2
    app.synth()
    return 0


sys.exit(main())
