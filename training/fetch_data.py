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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from training.data import upstream

_HOST = "https://raw.githubusercontent.com"


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


_CPQA, _CPQA_AT = "amazon-science/contextual-product-qa", "cec976cc2f2218aa76e562ecc9c7d79f1f3271bc"
_NER, _NER_AT = "bltlab/query-ner", "3cbc24cc5f49df458e19f4e21ecef295d48c7966"
_WEBSHOP, _WEBSHOP_AT = "princeton-nlp/WebShop", "64fa2a5c15c7daa698b9ac93f5bb5437b634c9bd"
_TAXONOMY, _TAXONOMY_AT = "Shopify/product-taxonomy", "v2024-07"
_CATEGORIES = Source(_TAXONOMY, _TAXONOMY_AT, "dist/en/categories.json")
_ESCI = (
    "esci-queries.tsv",
    "example_id and query, tab-separated: those columns of shopping_queries_dataset_examples.parquet of "
    "amazon-science/esci-data (Apache-2.0, in Git LFS), rows of the locale us",
)
DATASETS = (
    Dataset(
        "QueryNER (training)",
        "real search queries with 17 kinds of span: offsets of bltlab/query-ner over ESCI's queries",
        "MIT (labels), Apache-2.0 (queries)",
        "queryner_train",
        upstream.queryner,
        (
            Source(
                _NER,
                _NER_AT,
                "offset-splits/train.jsonl",
                "65044e65c38d6d4535cdcb65adfb0efd2f59378091e576a9349a41b41c3e60da",
            ),
        ),
        (_ESCI,),
    ),
    Dataset(
        "QueryNER (dev)",
        "the same, for measuring",
        "MIT (labels), Apache-2.0 (queries)",
        "queryner_dev",
        upstream.queryner,
        (
            Source(
                _NER,
                _NER_AT,
                "offset-splits/dev.jsonl",
                "ff87b8acd70ee333331d9b751e61d6096e7da03eeb2348e4e8f2b8678ada2d2e",
            ),
        ),
        (_ESCI,),
    ),
    Dataset(
        "WebShop",
        "instructions to a shopping assistant, paraphrased by people",
        "MIT",
        "plan_real_partial",
        upstream.webshop,
        (
            Source(
                _WEBSHOP,
                _WEBSHOP_AT,
                "baseline_models/data/human_goals.json",
                "b68746ed66cd31fdc5f70eb3f5831a46b38163563b57a66ddcab8fd60ee0cbdc",
            ),
        ),
    ),
    Dataset(
        "hetPQA and semiPQA",
        "questions about products, with the kind of source that answers them",
        "CDLA-Sharing-1.0",
        "plan_real_partial",
        upstream.product_questions,
        (
            Source(_CPQA, _CPQA_AT, "hetPQA/evidence_ranking/train.csv"),
            Source(
                _CPQA,
                _CPQA_AT,
                "hetPQA/evidence_ranking/dev.csv",
                "f2caa8b01a55b1cf36ac2d51f559a8a858a0ffe594308b86d05811d18acc4f66",
            ),
            Source(_CPQA, _CPQA_AT, "semiPQA/attribute_ranking/train.csv"),
            Source(
                _CPQA,
                _CPQA_AT,
                "semiPQA/attribute_ranking/dev.csv",
                "1eb2236eb80e6895688155de58623e1eed1a60a5c0b42a3d0a7aa98822f5999e",
            ),
        ),
    ),
    Dataset(
        "Bitext customer support",
        "questions to a help desk, with 27 intents",
        "CDLA-Sharing-1.0",
        "plan_real_partial",
        upstream.bitext,
        brought=(
            ("bitext.csv", "columns utterance and intent of Bitext's customer-support intent set (on its GitHub page)"),
        ),
    ),
    Dataset(
        "CLINC150",
        "utterances that no shop answers, and questions for an order's status",
        "CC BY 3.0",
        "clinc_train_sample",
        upstream.clinc,
        (
            Source(
                "clinc/oos-eval",
                "828f8093932c8fe6ca7936c3d2e52903b1c523de",
                "data/data_full.json",
                "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
            ),
        ),
    ),
    Dataset(
        "Shopify product taxonomy (categories)",
        "ten thousand kinds of product, and which attributes each has",
        "MIT",
        "taxonomy_categories",
        upstream.categories,
        (_CATEGORIES,),
    ),
    Dataset(
        "Shopify product taxonomy (attributes)",
        "attributes of products and their values",
        "MIT",
        "taxonomy_attributes",
        upstream.attributes,
        (Source(_TAXONOMY, _TAXONOMY_AT, "dist/en/attributes.json"),),
    ),
    Dataset(
        "Templated questions",
        "ours, written by templates over the taxonomy; written anew here, so not the rows of the shipped model",
        "Apache-2.0, over MIT",
        "plan_synth_taxonomy",
        upstream.templated,
        (_CATEGORIES,),
    ),
    Dataset(
        "AWS retail demo store",
        "2,465 products with prices and descriptions",
        "MIT-0",
        "aws_retail_products",
        upstream.retail_products,
        (
            Source(
                "aws-samples/retail-demo-store",
                "ad4313e648d51d5f0be20f45d46a9fb8e3a6464d",
                "src/products/data/products.yaml",
                "c6dd635a35929d148b5bd389b26434e434291e22098481ab66e76d6d0691198f",
            ),
        ),
    ),
)  # fmt: skip


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
