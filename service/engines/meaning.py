"""What a model's kind head makes of a question (`decoding/kind_head.py`), as plain data for messages and caches."""

import base64
import math
import struct
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = "e"  # float16
_LARGEST: Final = 65504.0  # that float16 holds
_PARTING: Final = ":"


@dataclass(frozen=True, slots=True)
class QuestionMeaning:
    """Where a question points in the `space` of this name, and the logarithm of the odds that it tells a need."""

    space: str
    direction: tuple[float, ...]
    odds: float

    def packed(self) -> str:
        """Return it as text, in half precision."""
        numbers = [max(-_LARGEST, min(_LARGEST, number)) for number in (self.odds, *self.direction)]
        return f"{self.space}{_PARTING}{base64.b64encode(struct.pack(f'<{len(numbers)}{_NUMBER}', *numbers)).decode()}"

    @classmethod
    def unpacked(cls, text: str) -> "QuestionMeaning | None":
        """Return what was packed; None for "". Raises ValueError for what `packed` never returns."""
        if not text:
            return None
        space, parting, rest = text.rpartition(_PARTING)
        try:
            packed = base64.b64decode(rest, validate=True)
            odds, *direction = struct.unpack(f"<{len(packed) // struct.calcsize(_NUMBER)}{_NUMBER}", packed)
        except (ValueError, struct.error) as error:  # binascii's are ValueErrors
            raise ValueError("not a question's meaning") from error
        if not parting or not direction or not all(map(math.isfinite, (odds, *direction))):
            raise ValueError("not a question's meaning")
        return cls(space, tuple(direction), odds)
