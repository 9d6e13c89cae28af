"""The CDK app: reads one fleet file, composes the stacks; nothing else. `npx cdk synth -c fleet=dev`, the default."""

import sys
from pathlib import Path

from infra.fleet.__main__ import fleet_file
from infra.fleet.event_load import EventLoadError
from infra.fleet.event_load_file import read
from infra.fleet.events import upcoming_events_only
from infra.fleet.settings import FleetFileError, FleetSettings
from infra.node import use_packaged_node

use_packaged_node()

from aws_cdk import App  # noqa: E402  # jsii starts its Node at this import

from infra.stacks import compose, compose_load  # noqa: E402


def main() -> int:
    """Synthesise the fleet that `-c fleet=` or cdk.json names; 2 when its file cannot be used."""
    app = App(analytics_reporting=False, stack_traces=False)
    try:
        settings = upcoming_events_only(FleetSettings.from_yaml(fleet_file(str(app.node.get_context("fleet")))))
        if load := app.node.try_get_context("load"):  # a file that `make event-load` wrote: its stack alone
            compose_load(app, *read(Path(str(load)), settings))
        else:
            compose(app, settings)
    except (FleetFileError, EventLoadError) as error:
        print(error, file=sys.stderr)
        return 2
    app.synth()
    return 0


sys.exit(main())
