"""The closed phrases of English."""

from pathlib import Path
from typing import Final

from service.planner.reading.phrase_file import PhraseFile

PHRASES: Final = PhraseFile(Path(__file__).with_name("phrases.txt"))
