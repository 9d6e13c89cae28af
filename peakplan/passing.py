"""Commands that become a module of this project, whose own command line gets the words."""

from typing import Any

import click

from peakplan.running import become, must_be_here, need

# A module's own command line gets its words unread, --help included.
PASS_ON: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    "add_help_option": False,
}
# With its defaults the allocator returns big tensors to the system at every training step, a third of its time.
TRAINING_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def passes_on(group: click.Group, name: str, module: str, extras: tuple[str, ...], text: str, *first: str) -> None:
    """Add a command to `group` that becomes `module`, with the words `first` before the user's."""

    @group.command(name, help=text, short_help=text.partition("\n")[0], **PASS_ON)
    @click.pass_context
    def run(context: click.Context) -> None:
        must_be_here(module)  # before anybody installs what it would need
        need(*extras)
        trains = module == "training.recipe"
        become(module, [*first, *context.args], variables=TRAINING_ENVIRONMENT if trains else None)
