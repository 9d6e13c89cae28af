"""The sample catalogue: 2,465 products of AWS's Retail Demo Store (MIT-0), which this package ships."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakplan_client.errors import CatalogueError

PRODUCTS = Path(__file__).parent / "sample" / "products.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Product:
    """One product; `gender` is "F", "M" or None, `price` in US dollars."""

    id: str
    name: str
    style: str
    category: str
    description: str
    price: float
    gender: str | None


def digest(path: Path) -> str:
    """Return a short digest of a catalogue's file. Raises CatalogueError where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise CatalogueError(
            f"There is no catalogue at {path} ({type(error).__name__}): name a .jsonl or .jsonl.gz file."
        ) from error


def read(path: Path = PRODUCTS) -> Iterator[Product]:
    """Yield the products of a file of JSON lines, gzipped or not. Raises CatalogueError."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise CatalogueError(f"{path} is no catalogue ({type(error).__name__}: {error}).") from error
    if not rows:
        raise CatalogueError(f"{path} holds no products.")
    for number, row in enumerate(rows, 1):
        yield _product(row, f"{path}, product {number}")


def _product(row: Any, where: str) -> Product:
    try:
        return Product(
            id=str(row["id"]),
            name=str(row["name"]),
            style=str(row["style"]).replace("-", " "),
            category=str(row["category"]),
            description=str(row["desc"]),
            price=float(row["price"]),
            gender=row.get("gender"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogueError(
            f"{where} is not as the sample catalogue has them ({type(error).__name__}: {error})."
        ) from error
