"""`python -m training.fetch_data ../shared/data`: the public data that `make train` reads, from where it is published.

Every set with its licence and its place, at a pinned revision; what arrives is checked by digest where we could check
it ourselves, and rewritten into the files that `training/data/rows.py` reads. What cannot be fetched is listed with the
file to bring. A file that is there already is left alone, and a download that was brought by hand is used as it is.
`--list` only says what there is. Fetched from elsewhere than we had it, a set may differ in some rows from ours.
"""

import argparse
import gzip
import hashlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from training.data import upstream

_HOST = "https://raw.githubusercontent.com"
_DATASETS = Path(__file__).parent / "data" / "datasets.toml"


class FetchError(RuntimeError):
    """Raised for a download that failed or is not what it should be; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a public repository at a revision; `sha256` is None where we had no copy to check it by."""

    repository: str
    revision: str
    path: str
    sha256: str | None = None

    def place(self, data: Path) -> Path:
        """Return where the download is kept, or may be brought by hand."""
        return data / "upstream" / self.repository.replace("/", "+") / self.path

    @property
    def url(self) -> str:
        return f"{_HOST}/{self.repository}/{self.revision}/{self.path}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A set: what it is, under which licence, its sources, and how they become rows of `makes`.

    `brought` names files below DATA/upstream that one has to bring, with what they hold.
    """

    name: str
    what: str
    licence: str
    makes: str
    rows: Callable[..., Iterable[Any]]
    sources: tuple[Source, ...] = ()
    brought: tuple[tuple[str, str], ...] = ()


def _datasets() -> tuple[Dataset, ...]:
    """Read datasets.toml."""
    return tuple(
        Dataset(
            table["name"],
            table["what"],
            table["licence"],
            table["makes"],
            getattr(upstream, table["rows"]),
            tuple(Source(**source) for source in table.get("sources", ())),
            tuple((brought["file"], brought["what"]) for brought in table.get("brought", ())),
        )
        for table in tomllib.loads(_DATASETS.read_text(encoding="utf-8"))["dataset"]
    )


DATASETS = _datasets()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", default=Path("../shared/data"), help="folder for the files")
    parser.add_argument("--list", action="store_true", help="only list the sets, their licences and their places")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n\n".join(map(described, DATASETS)))
        return
    missing = make_data(arguments.data)
    if missing:
        sys.exit("still missing:\n" + "\n".join(missing))
    print(f"{arguments.data} is complete: make train DATA={arguments.data}")


def described(dataset: Dataset) -> str:
    """Return what `--list` says of a set."""
    lines = [dataset.name, f"  {dataset.what}", f"  licence: {dataset.licence}", f"  makes:   {dataset.makes}.jsonl.gz"]
    for source in dataset.sources:
        checked = "checked by SHA-256" if source.sha256 else "its digest was never checked by us"
        lines.append(f"  from:    github.com/{source.repository} at {source.revision}: {source.path} ({checked})")
    lines += [f"  bring:   upstream/{name}: {what}" for name, what in dataset.brought]
    return "\n".join(lines)


def make_data(data: Path, get: Callable[[str], bytes] | None = None) -> list[str]:
    """Fetch what is lacking and write the files that can be written; return what is still missing, in words."""
    data.mkdir(parents=True, exist_ok=True)
    missing: list[str] = []
    for makes in dict.fromkeys(dataset.makes for dataset in DATASETS):
        path = data / f"{makes}.jsonl.gz"
        if path.is_file():
            print(f"{path.name} is there already")
            continue
        parts = [dataset for dataset in DATASETS if dataset.makes == makes]
        lacking = [f"{path.name}: {problem}" for dataset in parts for problem in _lacking(dataset, data, get or _get)]
        if lacking:
            missing += lacking
            continue
        rows = [row for dataset in parts for row in dataset.rows(*_files(dataset, data))]
        write_rows(rows, path)
        print(f"{path.name}: {len(rows):,} rows ({', '.join(dataset.licence for dataset in parts)})")
    return missing


def _lacking(dataset: Dataset, data: Path, get: Callable[[str], bytes]) -> list[str]:
    """Fetch the sources of a set; return what is still lacking of it."""
    problems = [
        f"bring {data / 'upstream' / name} ({dataset.name}): {what}"
        for name, what in dataset.brought
        if not (data / "upstream" / name).is_file()
    ]
    for source in dataset.sources:
        try:
            fetch(source, data, get)
        except FetchError as error:
            problems.append(str(error))
    return problems


def _files(dataset: Dataset, data: Path) -> list[Path]:
    brought = [data / "upstream" / name for name, _ in dataset.brought]
    return [*(source.place(data) for source in dataset.sources), *brought]


def fetch(source: Source, data: Path, get: Callable[[str], bytes]) -> None:
    """Download a source unless it is there. Raises FetchError, and then leaves nothing behind."""
    place = source.place(data)
    content = place.read_bytes() if place.is_file() else get(source.url)
    found = hashlib.sha256(content).hexdigest()
    if source.sha256 not in (None, found):
        raise FetchError(f"{source.url} is not the file that we know (SHA-256 {found}): bring that one as {place}")
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{place.name}.partial")
        partial.write_bytes(content)
        partial.rename(place)


def write_rows(rows: Iterable[Any], path: Path) -> None:
    """Write JSON lines into a gzip file that appears whole, the same bytes for the same rows."""
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    partial.rename(path)


def _get(url: str) -> bytes:
    print(f"fetching {url}", flush=True)
    try:
        return httpx.get(url, follow_redirects=True, timeout=60).raise_for_status().content
    except httpx.HTTPError as error:
        raise FetchError(f"{url} cannot be fetched: {error}") from error


if __name__ == "__main__":
    main()
