"""`peakplan plan` and `peakplan trace`: questions to a running service, or one to a model loaded here."""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

import click

from peakplan.running import need

_SECONDS = 30.0
_COLOURS = {"accepted": "green", "forced": "cyan", "sampled": "blue", "rejected": "red"}


def default_url() -> str:
    """Return the address where `peakplan serve` listens with this environment."""
    host = os.environ.get("PEAKPLAN_HOST") or os.environ.get("HOST") or "127.0.0.1"
    port = os.environ.get("PEAKPLAN_PORT") or os.environ.get("PORT") or "8080"
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"


def ask(path: str, body: dict[str, Any], *, url: str, local: bool) -> dict[str, Any]:
    """Return the service's answer. Raises ClickException with the reason, in the words of its problem document."""
    status, content = _here(path, body) if local else _over_http(url, path, body)
    try:
        answer: dict[str, Any] = json.loads(content)
    except ValueError:
        raise click.ClickException(f"{url}{path} is not Peakplan: it answered {status} without JSON") from None
    if status != 200:
        raise click.ClickException(answer.get("detail") or f"{url}{path} answered {status}")
    return answer


def _over_http(url: str, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    headers = {"content-type": "application/json"}
    if key := os.environ.get("PEAKPLAN_API_KEY"):
        headers["authorization"] = f"Bearer {key}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise click.ClickException(f"--url {url!r} is no address of a service: write it as http://HOST:PORT")
    request = urllib.request.Request(url.rstrip("/") + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise click.ClickException(
            f"no service answers at {url} ({reason}): start one with `peakplan serve`, "
            "or add --local to load the model for this question alone"
        ) from None


def _here(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    """Run the same application with one replica of its own, without a network."""
    need("service", "torch")
    import asyncio

    from pydantic import ValidationError

    from service.api.api_keys import ApiKeysError
    from service.engines.protocol import EngineError
    from service.environment import problems_of
    from service.settings import Settings

    try:
        return asyncio.run(_ask_an_application(path, body))
    except ValidationError as error:
        raise click.ClickException(problems_of(error, Settings)) from None
    except (EngineError, ApiKeysError) as error:
        raise click.ClickException(str(error)) from None


async def _ask_an_application(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    import httpx

    from service.api.app import create_app, replica_pool, wire
    from service.settings import Settings
    from service.telemetry.logs import configure_logging

    settings = Settings(replicas=1)
    configure_logging("error")
    pool = replica_pool(settings)
    services = wire(pool, settings)
    await pool.start()
    try:
        transport = httpx.ASGITransport(create_app(services, settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=_SECONDS) as client:
            response = await client.post(path, json=body)
            return response.status_code, response.content
    finally:
        await services.close()


def show_plan(answer: dict[str, Any]) -> str:
    """Return the plan as formatted JSON, and a line with its cost."""
    usage, timing = answer["usage"], answer["timing_ms"]
    cost = f"{timing['total']:.1f} ms from the {answer['source']}"
    if usage["steps"]:
        cost += f", {usage['plan_tokens']} tokens in {usage['steps']} forwards"
    if answer["degraded"]:
        cost += f"; degraded ({answer.get('reason')}): the reader planned it, not the model"
    return f"{json.dumps(answer['plan'], indent=2, ensure_ascii=False)}\n{click.style(cost, dim=True)}"


def show_trace(answer: dict[str, Any]) -> str:
    """Return both decodings, a line for each forward: the emitted tokens, then the rejected ones."""
    lines: list[str] = []
    for name in ("medusa", "greedy"):
        decoding = answer[name]
        steps, milliseconds = decoding["steps"], decoding["milliseconds"]
        tokens = decoding["usage"]["plan_tokens"]
        lines.append(click.style(f"{name}: {tokens} tokens in {len(steps)} forwards, {milliseconds:.1f} ms", bold=True))
        lines += [f"{number:3}  {_step(step)}" for number, step in enumerate(steps, start=1)]
        lines.append(f"     {decoding['plan_text']!r}\n")
    legend = "  ".join(click.style(status, fg=colour) for status, colour in _COLOURS.items())
    return "\n".join([*lines, f"tokens read: {legend}"])


def _step(step: dict[str, Any]) -> str:
    read = " ".join(
        click.style(repr(node["token_text"]), fg=_COLOURS[node["status"]], strikethrough=node["status"] == "rejected")
        for node in step["nodes"]
    )
    emitted = "".join(step["emitted"])
    return f"{step['milliseconds']:6.1f} ms  read {read or 'the prompt'}  -> {emitted!r}"


_CHUNK = 64  # questions of one call: their answers are printed as soon as they are there
_BATCH_SECONDS = 120.0


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
                for question, found in zip(chunk, client.plans(chunk, timeout=_BATCH_SECONDS), strict=True):  # type: ignore[arg-type]
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
