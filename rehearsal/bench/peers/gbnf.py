"""Plans under llama.cpp's own grammar: our Lark grammar written as GBNF, and the way that llama.cpp samples under it.

https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
"""

import ctypes
import re
from typing import Any

import numpy as np

from rehearsal.bench.peers.engines import LlamaCpp

_RULE = re.compile(r"^(\w+): (.*)$")
_PATTERN = re.compile(r"/((?:\\.|[^/])*)/")


def to_gbnf(lark: str) -> str:
    """Return a plan's grammar (service/planner/grammar.py) in GBNF: the same strings, with root `start`.

    Raises ValueError for a line that is not a rule of the kind that plans have.
    """
    rules = []
    for line in lark.splitlines():
        match = _RULE.match(line)
        if match is None:
            raise ValueError(f"not a rule of a plan's grammar: {line!r}")
        rules.append(f"{match[1]} ::= {_PATTERN.sub(_pattern, match[2])}")
    return "\n".join(rules) + "\n"


def _pattern(match: re.Match[str]) -> str:
    """Return the GBNF of a literal or a counted character class; a `-` goes last in its class, unescaped."""
    parts = []
    for characters, count, literal in re.findall(r"\[((?:\\.|[^\]])*)\]((?:\{[\d,]+\})?)|(.)", match[1]):
        if literal:
            parts.append(f'"{literal}"')
            continue
        dash = "-" if r"\-" in characters else ""
        kept = characters.replace(r"\-", "")
        parts.append(f"[{kept}{dash}]{count}")
    return " ".join(parts)


def decode(engine: LlamaCpp, prompt: list[int], lark: str, max_tokens: int) -> list[int]:
    """Decode greedily under the grammar, with a forward for every token.

    As llama.cpp's own sampling does, the grammar first sees the best token alone, and the vocabulary only where it
    refuses that one. Raises ValueError for a grammar that llama.cpp does not take.
    """
    import llama_cpp

    sampler = llama_cpp.llama_sampler_init_grammar(engine.vocabulary, to_gbnf(lark).encode(), b"start")
    if not sampler:
        raise ValueError("llama.cpp does not take the grammar")
    try:
        tokens: list[int] = []
        unread = prompt
        while len(tokens) < max_tokens:
            chosen = _best_allowed(llama_cpp, sampler, engine.logits(unread))
            if llama_cpp.llama_vocab_is_eog(engine.vocabulary, chosen):
                break
            llama_cpp.llama_sampler_accept(sampler, chosen)
            tokens.append(chosen)
            unread = [chosen]
        return tokens
    finally:
        llama_cpp.llama_sampler_free(sampler)


_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


def _best_allowed(llama_cpp: Any, sampler: Any, logits: Any) -> int:
    best = int(logits.argmax())
    for ids in (np.array([best]), np.arange(len(logits))):
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"], candidates["logit"] = ids, logits[ids]
        pointer = candidates.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        array = llama_cpp.llama_token_data_array(data=pointer, size=len(ids), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        found = int(candidates["logit"].argmax())  # what is refused has -inf now
        if np.isfinite(candidates["logit"][found]):
            return int(candidates["id"][found])
    raise ValueError("the grammar allows no token")
