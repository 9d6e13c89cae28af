"""Print a part of requirements-image.txt: `python3 service/requirement_parts.py PART`.

Parts share packages, so each package stands once, under a line `# for: PART...` that names its parts. The file that is
printed is one for pip. service/Dockerfile runs this alone, before anything is installed.
"""

import sys
from pathlib import Path

FILE = "requirements-image.txt"


def lines_of(part: str, file: Path) -> list[str]:
    """Return the lines of a part, comments too. Raises ValueError where the file does not have it."""
    found: list[str] = []
    wanted = False
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# for:"):
            wanted = part in line.split()[2:]
        elif wanted:
            found.append(line)
    if not found:
        raise ValueError(f"{file} has no part {part}")
    return found


if __name__ == "__main__":
    print("\n".join(lines_of(sys.argv[1], Path(FILE))))
