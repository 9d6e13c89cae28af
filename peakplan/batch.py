"""`peakplan plan --file`: every question of a file, as lines of JSON, by a running service."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

import click

from peakplan.running import need

_CHUNK = 64  # questions of one call: their answers are printed as soon as they are there
_TIMEOUT_SECONDS = 120.0


def read_questions(name: str, lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the questions of a file: a JSON string or object a line. Raises ClickException, which names the line."""
    questions = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
        except ValueError:
            given = None
        question = {"query": given} if isinstance(given, str) else given
        if not isinstance(question, dict) or not isinstance(question.get("query"), str):
            raise click.ClickException(
                f'{name}, line {number}: a question is {{"query": "red shoes", "history": ["boots"]}} or "red shoes", '
                "one a line"
            )
        questions.append(question)
    if not questions:
        raise click.ClickException(f"{name} has no question")
    return questions


def plan_file(file: IO[str], *, url: str, deadline_ms: int | None, history: Sequence[str]) -> None:
    """Print a line of JSON for each question: itself, and its answer or its problem. Fails where one has none."""
    need("service")
    from peakplan_client import Client, PlannerError

    name = getattr(file, "name", "the file")
    try:
        questions = read_questions(name, file)
    except UnicodeDecodeError:
        raise click.ClickException(f"{name} is not UTF-8") from None
    own: dict[str, Any] = {} if deadline_ms is None else {"deadline_ms": deadline_ms}
    earlier = {"history": list(history)} if history else {}
    failed, done = 0, 0
    try:
        with Client(url, token=os.environ.get("PEAKPLAN_API_KEY")) as client:
            for chunk in _chunks({**own, **earlier, **each} for each in questions):
                for question, found in zip(chunk, client.plans(chunk, timeout=_TIMEOUT_SECONDS), strict=True):  # type: ignore[arg-type]
                    failed += isinstance(found, PlannerError)
                    click.echo(json.dumps(_line(question, found), ensure_ascii=False))
                done += len(chunk)
                _tell(done, len(questions), failed)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except PlannerError as error:
        raise click.ClickException(str(error)) from None
    if failed:
        raise click.ClickException(f"{failed} of {len(questions)} questions have no plan: their lines say why")


def _line(question: Mapping[str, Any], found: Any) -> dict[str, Any]:
    from peakplan_client import PlannerError

    if isinstance(found, PlannerError):
        return {"request": question, "problem": {"status": found.status, "detail": str(found)}}
    return {"request": question, "answer": found.model_dump(mode="json")}


def _tell(done: int, all_of_them: int, failed: int) -> None:
    """Show how far it is, where somebody looks and the answers go elsewhere."""
    if sys.stderr.isatty() and not sys.stdout.isatty():
        end = "\n" if done == all_of_them else ""
        click.echo(f"\r{done} of {all_of_them} questions, {failed} without a plan{end}", err=True, nl=False)


def _chunks(questions: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    iterator = iter(questions)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
