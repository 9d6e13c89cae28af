"""The closed phrases of English."""

from pathlib import Path
from typing import Final

from service.planner.fallback.reading.language_data import LanguageData

PHRASES: Final = LanguageData(Path(__file__).parent)
