"""A shop folder for tests: its brands, lines and values, and the words of its products."""

from pathlib import Path
from typing import Any

from service.planner.shop.folder import seal
from service.planner.shop.lexicon import write_lexicon
from service.planner.spelling import sounds

NAMES = {
    "google": "brand", "vans": "brand", "thanks": "brand", "muga": "brand", "cune": "brand", "ninja": "brand",
    "quorlin": "brand",
    "old skool": "line", "rioja": "origin", "mug": "type", "cork boots": "material",
}  # fmt: skip


def write_folder(folder: Path, names: dict[str, str] = NAMES) -> Path:
    """Write a folder that knows names, each of a facet, and return it."""
    folder.mkdir()
    entries: list[dict[str, Any]] = [
        {"facet": facet, "sure": True, "count": 40, "spellings": [name]} for name, facet in names.items()
    ]
    entries.append({"facet": "brand", "sure": False, "count": 9, "spellings": ["orange"]})
    words = {word: 40 for name in names for word in name.split()}
    write_lexicon(folder, entries, words, sounds(words))
    seal(folder, {"products": 100})
    return folder
