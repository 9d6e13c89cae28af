"""The part of OpenAI's HTTP interface that an engine needs, and what a server of it is able to, found by probing it.

https://platform.openai.com/docs/api-reference/completions. Streamed, because a plan ends where its grammar does and not
where the server would stop: the connection is closed there, and closing it is also how a request is cancelled.

Servers differ. vLLM takes token ids, and grammars in `structured_outputs` (older ones in `guided_grammar`); with its
guidance backend it reads ours as they are. `transformers serve` takes text alone and refuses fields that it does not
know; others ignore them. So a grammar counts as obeyed only where the answer is one that no model gives without it.
"""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from service.decoding.constraint import GrammarCompiler
from service.weights.model_card import read_card
from service.weights.tokenizer_file import read_tokenizer, tokenizer_file

CONNECT_SECONDS = 5.0  # a busy host connects late; no request waits beyond its deadline anyway
# A plan is some hundred bytes and every token of it a few hundred more; anything far longer is not a completion.
MOST_BYTES = 1 << 20
_END = "[DONE]"

PromptForm = Literal["tokens", "text", "text with bos"]
GrammarField = Literal["structured_outputs", "guided_grammar"]
_PROMPT = " red shoes\n"
_UNLIKELY = " zebra quartz nineteen"
_BAD_REQUEST = range(400, 500)


class ServerError(Exception):
    """Raised when the server gave no completion. The message never quotes the server, which may quote the prompt."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServerGoneError(ServerError):
    """Raised when nothing listens at the address."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text; the last one also says why the server stopped ("stop", "length")."""

    text: str
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole completion. `prompt_tokens` is the server's own count, None where it reports none."""

    text: str
    prompt_tokens: int | None


class CompletionsClient:
    """Calls one server, one request at a time, over a kept-alive connection."""

    def __init__(self, url: str, key: str = "") -> None:
        """Take the `url` before /completions, such as http://127.0.0.1:8000/v1, and its bearer token `key`."""
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # the caller limits the whole answer
            trust_env=False,  # the prompt goes to this address and through no proxy
            verify=ssl.create_default_context() if url.startswith("https:") else False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def models(self) -> list[str]:
        """Return the names of the server's models. Raises ServerError."""
        with _AsServerError():
            response = await self._client.get("models")
        content = _object(_checked(response).content)
        return [str(model["id"]) for model in content.get("data", []) if isinstance(model, dict) and "id" in model]

    async def complete(self, payload: dict[str, Any]) -> Completion:
        """Return a whole completion, not streamed. Raises ServerError."""
        with _AsServerError():
            response = await self._client.post("completions", json=payload)
        content = _object(_checked(response).content)
        counted = (content.get("usage") or {}).get("prompt_tokens")
        return Completion(_piece(content).text, counted if isinstance(counted, int) else None)

    @asynccontextmanager
    async def stream(self, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[Piece]]:
        """Stream the pieces of a completion; leaving the context early ends the request at the server.

        Raises ServerError on entry and while it is read, also when the server breaks off.
        """
        with _AsServerError():
            async with self._client.stream("POST", "completions", json=payload | {"stream": True}) as response:
                _checked(response)
                yield _pieces(response)


async def _pieces(response: httpx.Response) -> AsyncIterator[Piece]:
    """Yield pieces from server-sent events, or from one JSON object of a server that does not stream."""
    if response.headers.get("content-type", "").startswith("application/json"):
        yield _piece(_object(await response.aread()))
        return
    async for event in _events(response):
        if event == _END:
            return
        piece = _piece(_object(event))
        yield piece
        if piece.finish is not None:
            return
    raise ServerError("the server broke off in the middle of its answer")


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each one-line event (https://html.spec.whatwg.org/multipage/server-sent-events)."""
    buffer, seen = b"", 0
    async for chunk in response.aiter_bytes():
        seen += len(chunk)
        if seen > MOST_BYTES:
            raise ServerError(f"the server's answer is longer than {MOST_BYTES} bytes")
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode("utf-8", "replace")


def _piece(content: dict[str, Any]) -> Piece:
    choices = content.get("choices")
    if content.get("error") or not isinstance(choices, list):
        raise ServerError("the server's answer is an error or no completion")
    if not choices:  # the usage report that some servers send last
        return Piece("")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    text, finish = choice.get("text", ""), choice.get("finish_reason")
    if not isinstance(text, str | None) or not isinstance(finish, str | None):
        raise ServerError("the server's answer is no completion")
    return Piece(text or "", finish)


def _object(content: bytes | str) -> dict[str, Any]:
    try:
        parsed: Any = json.loads(content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ServerError("the server's answer is not JSON")
    return parsed


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    raise ServerError(f"the server answered {response.status_code} {response.reason_phrase}", response.status_code)


class _AsServerError:
    """Context manager that turns httpx errors into ours; as a class it leaves a generator's own errors alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            raise ServerGoneError("nobody answers at the server's address") from error
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError):
            raise ServerError(f"the connection to the server failed: {type(error).__name__}") from error


class ServedModel:
    """A model folder without its weights. Loading takes half a second, most of it for the grammar's tokenizer."""

    def __init__(self, model_dir: Path, cache_dir: Path) -> None:
        """Load the folder. Raises ModelFolderError, or BaseWeightsError where the default base cannot be fetched."""
        self.card = read_card(model_dir)
        path = tokenizer_file(self.card, model_dir, cache_dir)
        self._tokenizer = read_tokenizer(path)
        self.compiler = GrammarCompiler(self._tokenizer.to_str(), self.card.eos_token_id)
        self.bos_text: str = self._tokenizer.id_to_token(self.card.bos_token_id) or ""

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt(self, text: str) -> list[int]:
        """Return the token ids of a prompt, the first token included, exactly as our own engines read it."""
        return [self.card.bos_token_id, *self.tokens(text)]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`model` names the model to the server; `grammar` is the field that carries a grammar, None where none works."""

    model: str
    prompt: PromptForm
    grammar: GrammarField | None

    def payload(self, served: ServedModel, prompt: str, max_tokens: int, grammar: str | None = None) -> dict[str, Any]:
        """Return the body of a request for a greedy completion, constrained by `grammar` where that is given."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": 0}
        if self.prompt == "tokens":
            body["prompt"] = served.prompt(prompt)
        else:
            body["prompt"] = prompt if self.prompt == "text" else served.bos_text + prompt
        if grammar is not None and self.grammar is not None:
            body[self.grammar] = {"grammar": grammar} if self.grammar == "structured_outputs" else grammar
        return body


async def find_capabilities(
    client: CompletionsClient, served: ServedModel, model: str, *, may_ask_for_grammars: bool
) -> Capabilities:
    """Probe the server with real inferences. Raises ServerError with what to do."""
    model = model or await _only_model(client)
    prompt = await _prompt_form(client, served, model)
    if may_ask_for_grammars:
        for field in ("structured_outputs", "guided_grammar"):
            able = Capabilities(model, prompt, field)
            if await _obeys(client, served, able):
                return able
    return Capabilities(model, prompt, None)


async def _only_model(client: CompletionsClient) -> str:
    models = await client.models()
    if len(models) != 1:
        offered = ", ".join(models[:8]) or "none"
        raise ServerError(f"it offers {len(models)} models ({offered}): name one with PEAKPLAN_OPENAI_MODEL")
    return models[0]


async def _prompt_form(client: CompletionsClient, served: ServedModel, model: str) -> PromptForm:
    """Return the first prompt form in which the server reads exactly our tokens, by its own count."""
    wanted, counts = len(served.prompt(_PROMPT)), []
    for form in ("tokens", "text", "text with bos"):
        able = Capabilities(model, form, None)
        try:
            answer = await client.complete(able.payload(served, _PROMPT, 1))
        except ServerError as error:
            if error.status in _BAD_REQUEST and form == "tokens":  # the server takes no token ids
                continue
            raise
        if answer.prompt_tokens == wanted:
            return form
        counts.append(str(answer.prompt_tokens))
    raise ServerError(
        f"it reads a prompt of {wanted} tokens as {' or '.join(counts)}: it must serve the export of the model folder, "
        "with that tokenizer (peakplan export)"
    )


async def _obeys(client: CompletionsClient, served: ServedModel, able: Capabilities) -> bool:
    grammar = f'start: "{_UNLIKELY}"'
    limit = len(served.tokens(_UNLIKELY)) + 1
    try:
        answer = await client.complete(able.payload(served, _PROMPT, limit, grammar))
    except ServerError:
        return False
    return answer.text.strip() == _UNLIKELY.strip()
