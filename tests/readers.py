"""A folder of the shipped model whose reader plans by choice, whatever bound its training ended with."""

from pathlib import Path

from service.planner.reader.reading import CARD, Bound, Reader, write_card
from service.settings.choices import SHIPPED_MODEL
from service.weights.seal import SEAL


def bounded_model(folder: Path, worth: float) -> Path:
    """Make such a folder; its reader plans what is worth less than this."""
    folder.mkdir()
    for file in SHIPPED_MODEL.iterdir():
        if file.name not in (CARD, SEAL):
            (folder / file.name).symlink_to(file)
    bound = Bound(worth=worth, lost=0.01, risk=0.1, questions=1000, by_reader=0.5, work=0.5)
    write_card(Reader.load(SHIPPED_MODEL).choices.model_copy(update={"bound": bound}), folder)
    return folder
