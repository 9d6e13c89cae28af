"""What catalogues call their columns and values, from `fields.txt`."""

from pathlib import Path
from typing import Final

from service.planner.text import lines_of_sections

SECTIONS: Final = {
    name: tuple(word for line in lines for word in line.split())
    for name, lines in lines_of_sections(Path(__file__).with_name("fields.txt")).items()
}
