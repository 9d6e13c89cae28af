"""The sample catalogue: 2,465 products of AWS's Retail Demo Store (MIT-0), from a file or its public repository."""

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from peakplan_client.errors import CatalogueError

_COMMIT = "ad4313e648d51d5f0be20f45d46a9fb8e3a6464d"
URL = f"https://raw.githubusercontent.com/aws-samples/retail-demo-store/{_COMMIT}/src/products/data/products.yaml"
SHA256 = "c6dd635a35929d148b5bd389b26434e434291e22098481ab66e76d6d0691198f"
NEARBY = Path(__file__).parents[3] / "shared" / "data" / "aws_retail_products.jsonl.gz"  # beside a checkout
MAX_BYTES = 16 << 20
DOWNLOAD_SECONDS = 20.0


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


def fetch(cache_dir: Path, source: str | Path | None = None, *, url: str = URL, sha256: str = SHA256) -> Path:
    """Return the catalogue's file: `source`, else the one beside the checkout, else a download, kept in `cache_dir`.

    Raises CatalogueError, which says what to do.
    """
    if source is not None:
        if not Path(source).is_file():
            raise CatalogueError(f"There is no catalogue at {source}: name a products.yaml or a .jsonl.gz file.")
        return Path(source)
    if (here := at_hand(cache_dir, sha256)) is not None:
        return here
    kept = _kept(cache_dir, sha256)
    try:
        _write(kept, _download(url, sha256))
    except CatalogueError as error:
        # The folder's own path is not for whoever asks a service.
        todo = f"Save it as {kept.name} in the cache folder (of a service, PEAKPLAN_CACHE_DIR)."
        raise CatalogueError(f"{error} {todo}") from error
    return kept


def at_hand(cache_dir: Path, sha256: str = SHA256) -> Path | None:
    """Return the catalogue's file where nothing needs to be downloaded."""
    return next((file for file in (NEARBY, _kept(cache_dir, sha256)) if file.is_file()), None)


def _kept(cache_dir: Path, sha256: str) -> Path:
    return cache_dir / f"sample-catalogue-{sha256[:12]}.yaml"


def _download(url: str, sha256: str) -> bytes:
    body = bytearray()
    try:
        with httpx.stream("GET", url, timeout=DOWNLOAD_SECONDS, follow_redirects=True) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    break
    except httpx.HTTPError as error:
        raise CatalogueError(f"The sample catalogue cannot be downloaded from {url}: {_why(error)}.") from error
    if hashlib.sha256(body).hexdigest() != sha256:
        raise CatalogueError(
            f"What {url} gives is not the sample catalogue (another SHA-256 than {sha256}): a proxy may have answered."
        )
    return bytes(body)


def _why(error: httpx.HTTPError) -> str:
    """Return in words why a download failed; a system's own words are "[Errno -2]" and the like."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    if isinstance(error, httpx.TimeoutException):
        return f"it does not answer within {DOWNLOAD_SECONDS:g} s"
    if isinstance(error, httpx.ConnectError):
        return "there is no connection to it"
    return f"the connection broke off ({type(error).__name__})"


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def read(path: Path) -> Iterator[Product]:
    """Yield the products of a file: YAML as upstream has it, or JSON lines, gzipped or not. Raises CatalogueError."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if path.suffix in (".yaml", ".yml"):
            rows = yaml.load(
                data, getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            )  # in Python alone it takes ten seconds
        else:
            rows = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (OSError, EOFError, ValueError, yaml.YAMLError) as error:
        raise CatalogueError(f"{path} is no catalogue ({type(error).__name__}: {error}).") from error
    if not isinstance(rows, list) or not rows:
        raise CatalogueError(f"{path} holds no list of products.")
    for number, row in enumerate(rows, 1):
        yield _product(row, f"{path}, product {number}")


def _product(row: Any, where: str) -> Product:
    try:
        return Product(
            id=str(row["id"]),
            name=str(row["name"]),
            style=str(row["style"]).replace("-", " "),
            category=str(row["category"]),
            description=str(row["description"] if "description" in row else row["desc"]),
            price=float(row["price"]),
            gender=row.get("gender") or row.get("gender_affinity"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogueError(
            f"{where} is not as the sample catalogue has them ({type(error).__name__}: {error})."
        ) from error
