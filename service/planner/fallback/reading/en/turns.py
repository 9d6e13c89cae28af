"""What an utterance says of what was wanted before it: the one table of what takes back or changes the thing."""

import re
from dataclasses import dataclass

from service.planner.fallback.reading.phrases import Phrases, Span

LIFTED_FACETS = frozenset(("color", "brand", "size", "material"))  # that may not matter any more
# What takes a wish back without a refusal: "remove logitech", "it doesn't have to be waterproof".
_TAKES_BACK = re.compile(
    r"\b(?:(?:remove|drop|scrap|forget(?: about)?|lose|ditch|skip|never ?mind|leave out)(?: the)?"
    r"|(?:doesn'?t|does not|don'?t|do not|needn'?t|need not)(?: really| actually)?(?: (?:have|need|got) to)? be)"
    r" (?P<words>.+?)(?: (?:bit|part|thing|please|pls|anymore|any more|then|now|after all|though|tho))*[.!]*$"
)
# What says that the thing itself is another: "make it a ukulele", "wellies instead".
_OTHER_THING = re.compile(r"\b(?:instead|i meant?|(?:make|change|switch) (?:it|that|them|this)?(?: to)?)\b")


@dataclass(frozen=True, slots=True)
class Turn:
    """What an utterance changes of those before it.

    `lifted` are facets that do not matter any more. `back` is where the words stand that are taken back, and `saying`
    where the phrase that does it begins.
    """

    lifted: frozenset[str] = frozenset()
    back: Span | None = None
    saying: int = 0
    is_other_thing: bool = False


def read_turn(utterance: str, said: Phrases) -> Turn:
    """Read one utterance after others; `said` is what its closed phrases say."""
    text = utterance.lower().replace("’", "'")
    back = _TAKES_BACK.search(text)
    return Turn(
        lifted=said.lifted & LIFTED_FACETS,
        back=(back.start("words"), len(text)) if back else None,
        saying=back.start() if back else 0,
        is_other_thing=_OTHER_THING.search(text) is not None,
    )
