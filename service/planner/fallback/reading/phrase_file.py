"""A language's closed phrases and words as data: a file of sections, its phrases as tries over tokens.

It finds phrases; what they mean is for the modules of the language's folder to say.
"""

from typing import Final

from service.planner.fallback.reading.tokens import Words

Node = dict[str, object]  # by the next word; under the empty word the label of the phrase that ends here


class Trie:
    """Phrases with labels, matched word by word; a hyphen between two words of the text counts as a space."""

    def __init__(self, phrases: dict[str, str], *, backwards: bool = False) -> None:
        self._root: dict[str, Node] = {}
        self._step = -1 if backwards else 1
        for phrase, label in phrases.items():
            node: Node = self._root  # type: ignore[assignment]
            for word in reversed(phrase.split()) if backwards else phrase.split():
                node = node.setdefault(word, {})  # type: ignore[assignment]
            node[""] = label
        self._number = self._root.get("#")
        self.starts: Final = frozenset(self._root)  # words with which a phrase begins (backwards: ends); "#": a number

    def match(self, words: Words, start: int, stop: int | None = None) -> tuple[int, str] | None:
        """Return (number of tokens, label) of the longest phrase that begins (backwards: ends) at a token.

        Tokens from `stop` on belong to no phrase.
        """
        text = words.texts[start] if 0 <= start < len(words.texts) else ""
        node, number = self._root.get(text), self._number
        found = self._walk(words, start, stop, node) if node is not None else None
        if found is None and number is not None and text.replace(".", "", 1).isdecimal():
            found = self._walk(words, start, stop, number)
        return found

    def _walk(self, words: Words, start: int, stop: int | None, node: Node) -> tuple[int, str] | None:
        texts, step, at = words.texts, self._step, start + self._step
        stop = len(texts) if stop is None else stop
        found = (1, str(node[""])) if "" in node else None
        while 0 <= at < stop:
            text = texts[at]
            below = node.get(text)
            if below is None and "#" in node and text.replace(".", "", 1).isdecimal():
                below = node["#"]
            at += step
            if below is None:
                if text == "-":
                    continue
                break
            node = below  # type: ignore[assignment]
            if "" in node:
                found = (abs(at - start), str(node[""]))
        return found
