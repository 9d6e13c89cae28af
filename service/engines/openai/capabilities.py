"""The capabilities of a server, found by probing it: how it takes a prompt, and how it takes a grammar.

Servers differ. vLLM takes token ids, and grammars in `structured_outputs` (older ones in `guided_grammar`); with its
guidance backend it reads ours as they are. `transformers serve` takes text alone and refuses fields that it does not
know; others ignore them. So a grammar counts as obeyed only where the answer is one that no model gives without it.
"""

from dataclasses import dataclass
from typing import Any, Literal

from service.engines.openai.client import CompletionsClient, ServerError
from service.engines.openai.served import ServedModel

PromptForm = Literal["tokens", "text", "text with bos"]
GrammarField = Literal["structured_outputs", "guided_grammar"]

_PROMPT = " red shoes\n"
_UNLIKELY = " zebra quartz nineteen"
_BAD_REQUEST = range(400, 500)


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
