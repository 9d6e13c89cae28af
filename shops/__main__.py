"""`peakplan shop`: a catalogue becomes a shop folder; a mapping is held against its catalogue (docs/shop.md)."""

import argparse
import shlex
import sys
from pathlib import Path

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping

from service.planner.vocabulary import Vocabulary, VocabularyError
from service.settings.choices import SHIPPED_MODEL
from shops.checking import misfits
from shops.roles import ROLES, RolesError
from shops.run import Done, Task, learn
from shops.sources import SourceError

_SHOWN = 5  # bad rows


def main(words: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 not possible, 2 a question to answer with --map."""
    parser = argparse.ArgumentParser(prog="peakplan shop", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("learn", help="learn a shop folder from a catalogue")
    one.add_argument("products", type=Path, help="JSON lines, CSV (both also .gz), Parquet or SQLite")
    one.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the shop folder to write")
    one.add_argument(
        "--map", action="append", default=[], metavar="FIELD=ROLE", help=f"what a field is: {', '.join(ROLES)}"
    )
    one.add_argument("--table", help="of SQLite, where there are several")
    one.add_argument("--currency", metavar="CODE", help="of the prices, where none says it: USD")
    one.add_argument("--index", default="products", help="the engine's index, for the mapping")
    one.add_argument("--quiet", action="store_true", help="no progress")
    two = commands.add_parser("check", help="hold a mapping against the vocabulary and a catalogue")
    two.add_argument("mapping", type=Path, help="the mapping file")
    two.add_argument("--products", type=Path, required=True, help="the catalogue, in any format that learn reads")
    two.add_argument("--table", help="of SQLite, where there are several")
    two.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="the model folder whose vocabulary plans use")
    arguments = parser.parse_args(words)
    try:
        return _learn(arguments) if arguments.command == "learn" else _check(arguments)
    except (SourceError, MappingError, VocabularyError) as error:
        print(f"peakplan shop {arguments.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        about = f"{error.filename or arguments.output}: {error.strerror or error}"
        print(f"peakplan shop {arguments.command}: {about}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nended; the same command goes on from here", file=sys.stderr)
        return 130


def _learn(arguments: argparse.Namespace) -> int:
    given = _given(arguments.map)
    while True:
        command = f"peakplan shop learn {arguments.products.name} --output {arguments.output.name}"
        command += "".join(f" --map {shlex.quote(f'{name}={role}')}" for name, role in given.items())
        command += f" --currency {arguments.currency}" if arguments.currency else ""
        task = Task(arguments.products, arguments.output, given, arguments.table, arguments.currency,
                    arguments.index, arguments.quiet, command)  # fmt: skip
        try:
            done = learn(task)
        except RolesError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                print(f"peakplan shop learn: {error}", file=sys.stderr)
                return 2
            print(f"{error}\nFIELD=ROLE: ", end="", file=sys.stderr, flush=True)
            given |= _given([input()])
            continue
        print(_told(done))
        return 0


def _check(arguments: argparse.Namespace) -> int:
    """Print what of a mapping fits nothing; return 1 where something does not."""
    mapping = CatalogueMapping.load(arguments.mapping)
    found = misfits(mapping, Vocabulary.load(arguments.model), arguments.products, arguments.table)
    print("\n".join(found) or f"{arguments.mapping}: everything fits")
    return int(bool(found))


def _given(words: list[str]) -> dict[str, str]:
    """Return role by field. Raises SourceError."""
    given = {}
    for word in words:
        name, is_said, role = word.rpartition("=")
        if not is_said or role not in ROLES:
            raise SourceError(f"--map {word}: write FIELD=ROLE, with one of {', '.join(ROLES)}")
        given[name] = role
    return given


def _told(done: Done) -> str:
    fields = ", ".join(f"{field} ({role})" for field, role in done.roles.told().items())
    lines = [
        f"{done.output}: {done.products:,} products, {done.summary['categories']:,} categories, "
        f"{done.summary['entries']:,} names and values",
        f"  fields: {fields}",
    ]
    if done.bad_count:
        lines.append(f"  {done.bad_count:,} rows are no products (bad_rows.tsv):")
        lines += [f"    line {line} {why}" for line, why in done.bad[:_SHOWN]]
    lines += [f"  {note}" for note in done.notes]
    lines.append(f"  its data: {done.summary['score']:g} of 100; look at {done.output / 'report.html'}")
    lines.append(f"  serve it: PEAKPLAN_SHOP_DIR={done.output}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
