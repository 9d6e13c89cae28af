"""The texts that the planner is judged by, and nothing is trained on: compared in full where they are, else by digest.

`judged_digests.txt` has a digest of the words of each text, and of those of them that are no stop words, so that a
checkout without the cases still finds a row of exactly the same words. `python -m tests.training.judged` writes it.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from service.planner.text import FUNCTION_WORDS

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "behaviour" / "cases.jsonl"
CONVERSATIONS = CASES.with_name("conversations.jsonl")
OWN_CASES = ROOT / "rehearsal" / "bench" / "cases" / "written.jsonl"
SCOPE = OWN_CASES.with_name("scope.tsv")
DIGESTS = Path(__file__).with_name("judged_digests.txt")
NEAR = 0.8
_STOP_WORDS = frozenset(word.replace("'", "") for word in FUNCTION_WORDS)


def content_of(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return all words of a text, and those that are no stop words."""
    words = frozenset(re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", "")))
    return words, words - _STOP_WORDS


class Likeness:
    """Finds texts that are nearly one of some others: by words they share, or by the same words except stop words."""

    def __init__(self, texts: Iterable[str], near: float = NEAR) -> None:
        self.contents = [content_of(text) for text in sorted(set(texts))]
        self._near = near
        self._with_word: dict[str, list[int]] = defaultdict(list)
        for index, (words, _) in enumerate(self.contents):
            for word in words:
                self._with_word[word].append(index)

    def is_near(self, text: str) -> bool:
        """Tell whether a text is nearly one of them; one word left of an utterance is no likeness."""
        words, left = content_of(text)
        shared = Counter(index for word in words for index in self._with_word.get(word, ()))
        return any(
            count / len(words | self.contents[index][0]) >= self._near
            or (len(left) > 1 and left == self.contents[index][1])
            for index, count in shared.items()
        )


@cache
def _judged() -> Likeness:
    files = (CASES, CONVERSATIONS, OWN_CASES)
    cases = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines() if line]
    texts = {text for case in cases for text in (case["query"], " ".join([*case.get("history", ()), case["query"]]))}
    return Likeness(texts | {line.split("\t")[2] for line in SCOPE.read_text(encoding="utf-8").splitlines()})


def is_near(text: str) -> bool:
    """Tell whether a text is nearly one that judges."""
    return _judged().is_near(text)


@cache
def _digests() -> frozenset[str]:
    return frozenset(DIGESTS.read_text(encoding="utf-8").split())


def has_the_same_words(text: str) -> bool:
    """Tell, by digest, whether a text has exactly the words of one of them, stop words aside."""
    words, left = content_of(text)
    return _digest("all", words) in _digests() or (len(left) > 1 and _digest("left", left) in _digests())


def _digest(kind: str, words: frozenset[str]) -> str:
    return hashlib.sha256(f"{kind} {' '.join(sorted(words))}".encode()).hexdigest()[:12]


def main() -> None:
    found = {_digest("all", words) for words, _ in _judged().contents}
    found |= {_digest("left", left) for _, left in _judged().contents if len(left) > 1}
    DIGESTS.write_text("\n".join(sorted(found)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
