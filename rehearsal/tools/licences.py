"""The licences of what the service installs: a list for docs/licences.md, and a check that each is one we may ship.

`--check` fails for a package whose licence is unknown or not in the list. Read from the packages' own metadata.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from service.requirement_parts import FILE, lines_of

# Permissive, or weak copyleft of files that we use as they are.
ALLOWED = frozenset(
    "0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 ISC LLVM-exception MIT MIT-0 MPL-2.0 PSF-2.0 "
    "Python-2.0 Unicode-3.0 Unlicense Zlib".split()
)
_LONG_NAMES = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_PINNED = re.compile(r"^[A-Za-z0-9._\[\]-]+==[^\\#]+")  # without hashes, and what a comment says


def pinned(lines: Iterable[str], marks: Mapping[str, str] | None = None) -> list[Requirement]:
    """Return the releases that requirement lines name for this system, or for one with these marks, without markers."""
    wanted = [Requirement(found[0]) for line in lines if (found := _PINNED.match(line))]
    return [
        Requirement(f"{each.name}{each.specifier}")
        for each in wanted
        if each.marker is None or each.marker.evaluate(dict(marks or {}))
    ]


def licences() -> dict[str, tuple[str, str]]:
    """Return version and licence of every package that serving installs here, by name; "" where none is named."""
    found = {}
    for part in ("service", "torch"):
        for wanted in pinned(lines_of(part, Path(FILE))):
            one = distribution(wanted.name)
            found[wanted.name] = (one.version.partition("+")[0], licence_of(one))
    return found


def licence_of(one: Distribution) -> str:
    """Return a package's licence as its metadata says: the expression, else the classifiers, else the first line."""
    if expressions := one.metadata.get_all("License-Expression"):
        return str(expressions[0])
    classifiers = [line for line in one.metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in classifiers]
    if known := [_LONG_NAMES.get(name, name) for name in names if name != "OSI Approved"]:
        return " AND ".join(known)
    text = "".join(one.metadata.get_all("License") or [])
    first = text.strip().partition("\n")[0]
    return _LONG_NAMES.get(first, first)


def is_allowed(licence: str) -> bool:
    """Tell whether every part of a licence expression is one that we may ship; of alternatives, one is enough."""
    parts = re.split(r" (?:AND|WITH) ", re.sub(r"[()]", "", licence))
    return all(any(choice.strip() in ALLOWED for choice in part.split(" OR ")) for part in parts)


def listed() -> str:
    """Return the list of docs/licences.md, a line for each licence."""
    packages: dict[str, list[str]] = {}
    for name, (_, licence) in sorted(licences().items()):
        packages.setdefault(licence, []).append(name)
    return "\n".join(f"- {licence}: {', '.join(names)}" for licence, names in sorted(packages.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail for a licence that is not in the list")
    arguments = parser.parse_args()
    found = licences()
    refused = {name: licence for name, (_, licence) in found.items() if not is_allowed(licence)}
    if not arguments.check:
        print(listed())
    for name, licence in refused.items():
        print(f"{name}: {licence or 'no licence named'}: may we ship it? rehearsal/tools/licences.py lists what we may")
    return 1 if arguments.check and refused else 0


if __name__ == "__main__":
    sys.exit(main())
