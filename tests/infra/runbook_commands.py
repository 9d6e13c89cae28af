"""The commands of a page for people on call, as they stand there, and what a reader puts into them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_COMMAND = re.compile(r"(?:^|[\s$(;|])(?:aws [a-z0-9-]+ [a-z0-9-]+|make [a-z-]+|peakplan fleet [a-z-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Lines that are typed together: a block of code, or a command within a sentence."""

    page: str
    text: str

    @property
    def target(self) -> str | None:
        """The target of a command of `make` or `peakplan` that stands alone: rollback, fleet cell out."""
        found = re.match(r"(?:make|peakplan) ([a-z-]+(?: [a-z-]+)*)", self.text)
        return found[1] if found else None

    def operations(self) -> set[tuple[str, str]]:
        """The services and operations that it asks the AWS CLI for."""
        return set(re.findall(r"(?:^|[\s$(;|])aws ([a-z0-9-]+) ([a-z0-9-]+)", self.text))


def blocks_of(page: Path) -> list[Block]:
    """A page's blocks that have a command of `aws`, `make` or `peakplan`; what has neither is typed on a host."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fenced, within in re.findall(r"^```\n(.*?)^```|`([^`]+)`", text, re.DOTALL | re.MULTILINE):
        said = fenced or " ".join(within.split())  # a sentence's command may break at any space
        if _COMMAND.search(said) and (fenced or re.match(r"aws |make |peakplan fleet ", said)):
            found += [Block(page.stem, each) for each in _alone(said)]
    return found


def _alone(text: str) -> list[str]:
    """Each line of a block that has `make` or `peakplan` alone is a block of its own, so that it runs once."""
    lines = text.strip().splitlines()
    return lines if all(line.startswith(("make ", "peakplan ")) for line in lines) else [text]


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Return a block with a reader's values for the placeholders that docs/runbooks/page.md names."""
    for placeholder, value in values.items():
        text = re.sub(rf"(?<!\w){re.escape(placeholder)}(?!\w)", value, text)
    return text
