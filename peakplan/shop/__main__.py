"""`peakplan shop`: a catalogue becomes a shop folder, held against its catalogue and judgements (docs/shop.md)."""

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping
from pydantic import ValidationError

from peakplan.shop.checking import misfits
from peakplan.shop.chunks import write_whole
from peakplan.shop.engines import engine_source, fetch_rows, is_engine
from peakplan.shop.roles import ROLES, RolesError
from peakplan.shop.run import Done, Task, learn
from peakplan.shop.sources import SourceError
from service.engines.protocol import EngineError
from service.planner.shop.folder import ShopFolderError
from service.planner.vocabulary import Vocabulary, VocabularyError
from service.settings.choices import SHIPPED_MODEL

_SHOWN = 5  # bad rows


def main(words: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 not possible, 2 a question to answer with --map, 3 done without
    a field that matters.
    """
    parser = argparse.ArgumentParser(prog="peakplan shop", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("learn", help="learn a shop folder from a catalogue")
    one.add_argument(
        "products", help="JSON lines, CSV (both also .gz), Parquet, SQLite, or opensearch://, elasticsearch://, "
        "typesense://HOST:PORT/INDEX, postgresql://"
    )  # fmt: skip
    one.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the shop folder to write")
    one.add_argument(
        "--map", action="append", default=[], metavar="FIELD=ROLE", help=f"what a field is: {', '.join(ROLES)}"
    )
    one.add_argument("--table", help="of PostgreSQL, or of SQLite where there are several")
    one.add_argument("--key-file", type=Path, help="a file of the engine's API key, or of user:password")
    one.add_argument("--currency", metavar="CODE", help="of the prices, where none says it: USD")
    one.add_argument("--index", default="products", help="the engine's index, for the mapping")
    one.add_argument("--quiet", action="store_true", help="no progress")
    one.add_argument("--json", action="store_true", help="print what came of it as one line of JSON")
    two = commands.add_parser("check", help="hold a mapping against the vocabulary and a catalogue")
    two.add_argument("mapping", type=Path, help="the mapping file")
    two.add_argument("--products", type=Path, required=True, help="the catalogue, in any format that learn reads")
    two.add_argument("--table", help="of SQLite, where there are several")
    two.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="the model folder whose vocabulary plans use")
    two.add_argument("--json", action="store_true", help="print one line of JSON")
    _add_evaluate(commands)
    arguments = parser.parse_args(words)
    run = {"learn": _learn, "check": _check, "evaluate": _evaluate}[arguments.command]
    try:
        return run(arguments)
    except (SourceError, MappingError, VocabularyError, ShopFolderError, EngineError) as error:
        print(f"peakplan shop {arguments.command}: {error}", file=sys.stderr)
        return 1
    except ValidationError as error:
        names = ", ".join(str(part) for each in error.errors() for part in each["loc"][-2:-1])
        print(f"peakplan shop {arguments.command}: no engine can name the fields {names}: rename them", file=sys.stderr)
        return 1
    except OSError as error:
        about = f"{error.filename or arguments.output}: {error.strerror or error}"
        print(f"peakplan shop {arguments.command}: {about}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nended; the same command goes on from here", file=sys.stderr)
        return 130


def _add_evaluate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    one = commands.add_parser("evaluate", help="measure what searches find: raw words, plans, and with the shop folder")
    one.add_argument(
        "judgements", type=Path, nargs="+", help="TREC qrels; question, product id, grade between tabs; or outcomes"
    )
    one.add_argument("--products", type=Path, required=True, help="the catalogue, in any format that learn reads")
    one.add_argument("--shop", type=Path, required=True, metavar="FOLDER", help="the shop folder that learn wrote")
    one.add_argument("--questions", type=Path, help="the words of question or request ids: id and question, by a tab")
    one.add_argument("--output", type=Path, metavar="FOLDER", help="write evaluation.json and evaluation.html there")
    one.add_argument("--measure", action="append", help="of ir-measures; default: nDCG@10, R@100, Judged@10")
    one.add_argument("--reader-alone", action="store_true", help="plans by the reader alone: no model is loaded")
    one.add_argument("--json", action="store_true", help="print JSON instead of the table")
    one.add_argument("--table", help="of SQLite, where there are several")
    one.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="the model folder")


def _learn(arguments: argparse.Namespace) -> int:
    given = _given(arguments.map)
    source, name = Path(arguments.products), shlex.quote(Path(arguments.products).name)
    table, engine = arguments.table, is_engine(arguments.products)
    if engine:
        asked = engine_source(arguments.products, arguments.key_file, table)
        source, name, table = fetch_rows(asked, arguments.output, quiet=arguments.quiet), str(asked), None
    while True:
        command = f"peakplan shop learn {name} --output {arguments.output.name}"
        command += "".join(f" --map {shlex.quote(f'{name}={role}')}" for name, role in given.items())
        command += f" --currency {arguments.currency}" if arguments.currency else ""
        task = Task(source, arguments.output, given, table, arguments.currency, arguments.index, arguments.quiet,
                    command, name if engine else source.name)  # fmt: skip
        try:
            done = learn(task)
        except RolesError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                print(f"peakplan shop learn: {error}", file=sys.stderr)
                return 2
            print(f"{error}\nFIELD=ROLE: ", end="", file=sys.stderr, flush=True)
            given |= _given([input()])
            continue
        if engine:
            source.unlink()
        print(json.dumps(_found(done), ensure_ascii=False) if arguments.json else _told(done))
        return 3 if done.roles.unused else 0


def _check(arguments: argparse.Namespace) -> int:
    """Print what of a mapping fits nothing; return 1 where something does not."""
    mapping = CatalogueMapping.load(arguments.mapping)
    found = misfits(mapping, Vocabulary.load(arguments.model), arguments.products, arguments.table)
    if arguments.json:
        print(json.dumps({"mapping": str(arguments.mapping), "misfits": found}, ensure_ascii=False))
    else:
        print("\n".join(found) or f"{arguments.mapping}: everything fits")
    return int(bool(found))


def _evaluate(arguments: argparse.Namespace) -> int:
    """Print what each way of searching finds, and write the page."""
    from peakplan.shop.evaluating import (  # with the whole service, which the other commands do without
        MEASURES,
        evaluate,
        render,
        table,
    )
    from peakplan.shop.judgements import read_judgements

    judgements = read_judgements(arguments.judgements, arguments.questions)
    with tempfile.TemporaryDirectory(prefix="peakplan-evaluate-") as scratch:
        found = evaluate(
            judgements, arguments.products, arguments.shop, Path(scratch), model_dir=arguments.model,
            with_model=not arguments.reader_alone, measures=arguments.measure or MEASURES, table=arguments.table,
        )  # fmt: skip
    summary = found.summary()
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
        write_whole(arguments.output / "evaluation.json", text.encode())
        write_whole(arguments.output / "evaluation.html", render(found, arguments.products.name).encode())
    if arguments.json:
        print(json.dumps(summary, ensure_ascii=False))
        return 0
    print(f"{summary['questions']} questions, in brackets the difference from raw words\n{table(summary)}")
    print("\n".join(f"  {note}" for note in found.notes), end="\n" if found.notes else "")
    print("worst first: " + "; ".join(each["question"] for each in summary["worst_first"][:_SHOWN]))
    if arguments.output:
        print(f"each question: {arguments.output / 'evaluation.html'}")
    return 0


def _given(words: list[str]) -> dict[str, str]:
    """Return role by field. Raises SourceError."""
    given = {}
    for word in words:
        name, is_said, role = word.rpartition("=")
        if not is_said or role not in ROLES:
            raise SourceError(f"--map {word}: write FIELD=ROLE, with one of {', '.join(ROLES)}")
        given[name] = role
    return given


def _found(done: Done) -> dict[str, Any]:
    return {
        "output": str(done.output),
        "products": done.products,
        "fields": done.roles.told(),
        "bad_rows": done.bad_count,
        "notes": done.notes,
        **done.summary,
    }


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
    lines += [f"  {note}" for note in (*done.roles.unused, *done.notes)]
    lines.append(f"  its data: {done.summary['score']:g} of 100; look at {done.output / 'report.html'}")
    lines.append(f"  serve it: PEAKPLAN_SHOP_DIR={done.output}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
