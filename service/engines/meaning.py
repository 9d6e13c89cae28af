"""What a model's kind head makes of a question (`decoding/kind_head.py`), as plain data for messages and caches."""

import base64
import math
import struct
from dataclasses import dataclass
from typing import Final

_HEAD: Final = struct.Struct("<ee")  # the odds, and the largest number: float16
_LARGEST: Final = 65504.0  # that float16 holds
_STEPS: Final = 127  # of the others from 0 to the largest: int8
_PARTING: Final = ":"


@dataclass(frozen=True, slots=True)
class QuestionMeaning:
    """Where a question points in the `space` of this name, and the logarithm of the odds that it tells a need."""

    space: str
    direction: tuple[float, ...]
    odds: float

    def packed(self) -> str:
        """Return it as text, its numbers in int8: a shared cache keeps it beside every plan."""
        top = min(max(map(abs, self.direction), default=0.0), _LARGEST)
        head = _HEAD.pack(max(-_LARGEST, min(_LARGEST, self.odds)), top)
        steps = [round(_STEPS * max(-1.0, min(1.0, number / top))) if top else 0 for number in self.direction]
        packed = head + struct.pack(f"{len(steps)}b", *steps)
        return f"{self.space}{_PARTING}{base64.b64encode(packed).decode()}"

    @classmethod
    def unpacked(cls, text: str) -> "QuestionMeaning | None":
        """Return what was packed; None for "". Raises ValueError for what `packed` never returns."""
        if not text:
            return None
        space, parting, rest = text.rpartition(_PARTING)
        try:
            packed = base64.b64decode(rest, validate=True)
            odds, top = _HEAD.unpack_from(packed)
            steps = struct.unpack_from(f"{len(packed) - _HEAD.size}b", packed, _HEAD.size)
        except (ValueError, struct.error) as error:  # binascii's are ValueErrors
            raise ValueError("not a question's meaning") from error
        if not parting or not steps or not (math.isfinite(odds) and math.isfinite(top)):
            raise ValueError("not a question's meaning")
        return cls(space, tuple(top * step / _STEPS for step in steps), odds)
