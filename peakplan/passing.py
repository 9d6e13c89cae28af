"""Commands that become a module of this project, whose own command line gets the words."""

import re
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from peakplan.environment import have
from peakplan.running import CHECKOUT, become, must_be_here, need, place_of, run_in_turn

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
_OPTION = re.compile(r'\.add_argument\(\s*"(--[a-z][a-z-]*)"')


class Passing(click.Command):
    """A command that becomes `module`; a shell completes its options from the module's source, which is not run."""

    def __init__(self, *arguments: Any, module: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.module = module

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete an option; otherwise a fleet's name, where the command takes one, and files."""
        if incomplete.startswith("-"):
            return [CompletionItem(name) for name in sorted(self._options()) if name.startswith(incomplete)]
        found = fleets(ctx, None, incomplete) if self.module.startswith("infra.") else []
        return found or [CompletionItem(incomplete, type="file")]

    def _options(self) -> set[str]:
        path = place_of(self.module)
        file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        source = file.read_text(encoding="utf-8") if file.is_file() else ""
        return {"--help", "--json", *_OPTION.findall(source)}


def fleets(_: click.Context, __: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """Return the names of the fleets that ship, for a shell."""
    names = sorted(path.stem for path in (CHECKOUT / "infra" / "fleets").glob("*.yaml"))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def asks_for_help(words: Sequence[str]) -> bool:
    """Tell whether a command line asks for help."""
    return bool({"-h", "--help"} & set(words))


def passes_on(
    group: click.Group,
    name: str,
    module: str,
    extras: tuple[str, ...],
    text: str,
    *first: str,
    then: tuple[str, ...] = (),
    installs: tuple[str, ...] = (),
) -> None:
    """Add a command to `group` that becomes `module`, with the words `first` before the user's.

    Before it, what `installs` names (peakplan/environment.py); after it, if it succeeds, the modules of `then`.
    """

    @group.command(name, cls=Passing, module=module, help=text, short_help=text.partition("\n")[0], **PASS_ON)
    @click.pass_context
    def run(context: click.Context) -> None:
        must_be_here(module)  # before anybody installs what it would need
        need(*extras)
        words = [*first, *context.args]
        if asks_for_help(words) or not (then or installs):
            trains = module == "training.recipe"
            become(module, words, variables=TRAINING_ENVIRONMENT if trains else None)
        else:
            have(*installs)
            run_in_turn([module, *words], *([after] for after in then))
