"""`python -m training.fetch_data ../shared/data`: the public data that `make train` reads, from where it is published.

Every set with its licence and its place, at a pinned revision; what arrives is checked by digest where we could check
it ourselves, and rewritten into the files that `training/data/rows.py` reads. What cannot be fetched is listed with the
file to bring. A file that is there already is left alone, and a download that was brought by hand is used as it is.
`--list` only says what there is. Fetched from elsewhere than we had it, a set may differ in some rows from ours.
"""

import argparse
import csv
import gzip
import hashlib
import json
import random
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from training.data.rows import VERTICAL_CODES, held_out

Row = dict[str, Any]
# WebShop's own split of its goals, by their number: the first are for its test.
_WEBSHOP_TEST, _WEBSHOP_DEV = 500, 1500
# Of CLINC's intents these may well be a shop's, and say neither that it answers nor that it does not.
_CLINC_UNCLEAR = frozenset(
    "application_status cancel goodbye greeting ingredients_list maybe new_card no order order_checks redeem_rewards "
    "repeat replacement_card_duration report_lost_card restaurant_reviews rewards_balance shopping_list "
    "shopping_list_update thank_you yes".split()
)
_CLINC_WHOLE, _CLINC_EACH = ("oos", "order_status"), 15
_EVIDENCE = {
    "attribute": "catalog", "bullet": "catalog", "Desc": "catalog", "OSP": "catalog", "CQA": "qa", "review": "reviews",
}  # fmt: skip
_BITEXT = {
    "account": "recover_password registration_problems set_up_shipping_address create_account newsletter_subscription "
    "delete_account edit_account switch_account",
    "policy_help": "check_payment_methods check_cancellation_fee delivery_options",
    "payment_billing": "check_invoice payment_issue get_invoice",
    "order_change": "change_shipping_address change_order cancel_order place_order",
    "order_status": "delivery_period track_order track_refund",
    "returns_refunds": "check_refund_policy get_refund",
    "contact_agent": "contact_human_agent contact_customer_service",
    "feedback": "review complaint",
}
_TEMPLATED_ROWS = 14_000
_COLOURS = "black white red blue green grey pink beige brown orange purple yellow silver gold".split()
_TEMPLATES = (
    ("taxonomy_keyword", "find_product", "{kind}"),
    ("taxonomy_keyword", "find_product", "{colour} {kind}"),
    ("taxonomy_keyword", "find_product", "{colour} {kind} under ${price}"),
    ("taxonomy_conversational", "find_product", "i am looking for {colour} {kind}"),
    ("taxonomy_conversational", "find_product", "do you have {kind} below {price} dollars?"),
    ("taxonomy_conversational", "find_product", "can you recommend {kind} in {colour}"),
    ("taxonomy_ask_spec", "ask_product", "what sizes do these {kind} come in"),
    ("taxonomy_ask_reviews", "ask_product", "are these {kind} any good?"),
)


def queryner(labels: Path, queries: Path) -> Iterator[Row]:
    """Join labels by example with the queries that they belong to; queries of other lengths are left out."""
    texts = dict(line.split("\t", 1) for line in queries.read_text(encoding="utf-8").splitlines() if "\t" in line)
    for line in labels.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        query = texts.get(str(row["example_id"]), "").lower()
        words = query.split()
        if len(words) == len(row["labels"]):
            spans = [[kind, " ".join(words[first:end]), first, end] for kind, first, end in _spans(row["labels"])]
            yield {"id": row["example_id"], "query": " ".join(words), "labels": row["labels"], "spans": spans}


def _spans(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, first, end) of BIO labels."""
    first = 0
    for at, label in enumerate([*labels, "O"]):
        if not label.startswith("I-") and at and labels[at - 1] != "O":
            yield labels[first][2:], first, at
        if label.startswith("B-"):
            first = at


def webshop(goals: Path) -> Iterator[Row]:
    """Yield instructions outside WebShop's test, each text once."""
    texts: list[str] = json.loads(goals.read_text(encoding="utf-8"))
    seen = set(texts[:_WEBSHOP_TEST])
    for number, text in enumerate(texts[_WEBSHOP_TEST:], _WEBSHOP_TEST):
        if text not in seen:
            seen.add(text)
            split = "dev" if number < _WEBSHOP_DEV else "train"
            yield _partial(text, "conversational", "find_product", ["catalog"], "webshop", split)


def product_questions(*files: Path) -> Iterator[Row]:
    """Yield each question with the sources of its evidence; without any its sources are unknown.

    In hetPQA each candidate names its kind of source; semiPQA's are all of the catalogue.
    """
    evidence: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in files:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                source = _EVIDENCE[row.get("source", "attribute")]
                evidence[row["question"], path.parts[-3]] |= {source} if row["label"] != "0" else set()
    for (question, name), sources in evidence.items():
        made = _partial(question, "conversational", "ask_product", sorted(sources), f"pqa_{name}")
        yield made if sources else made | {"supervised": ["mode", "intent"]}


def bitext(path: Path) -> Iterator[Row]:
    """Yield each utterance with the plan's intent; those of other intents are left out."""
    intents = {theirs: ours for ours, many in _BITEXT.items() for theirs in many.split()}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["intent"] in intents:
                made = _partial(row["utterance"], "conversational", intents[row["intent"]], ["help"], "bitext")
                yield made | {"supervised": ["intent", "sources"]}


def clinc(path: Path) -> Iterator[Row]:
    """Yield a sample of every intent of which it is clear whether a shop answers it."""
    whole: Mapping[str, list[tuple[str, str]]] = json.loads(path.read_text(encoding="utf-8"))
    by_intent: dict[str, list[str]] = defaultdict(list)
    for text, intent in [*whole["train"], *whole["oos_train"]]:
        by_intent[intent].append(text)
    for intent, texts in by_intent.items():
        if intent not in _CLINC_UNCLEAR:
            kept = (
                texts if intent in _CLINC_WHOLE else random.Random(intent).sample(texts, min(_CLINC_EACH, len(texts)))
            )
            label = intent if intent == "order_status" else "out_of_scope"
            yield from ({"text": text, "clinc_intent": intent, "label": label} for text in kept)


def categories(path: Path) -> Iterator[Row]:
    """Yield id, path and attributes of every category."""
    for vertical in json.loads(path.read_text(encoding="utf-8"))["verticals"]:
        for item in vertical["categories"]:
            handles = [attribute["handle"] for attribute in item["attributes"]]
            number = item["id"].rsplit("/", 1)[-1]
            yield {"id": number, "path": item["full_name"], "leaf": not item["children"], "attrs": handles}


def attributes(path: Path) -> Iterator[Row]:
    """Yield every attribute with its values and the attributes that extend it."""
    for item in json.loads(path.read_text(encoding="utf-8"))["attributes"]:
        extended = [other["handle"] for other in item.get("extended_attributes", ())]
        values = [value["name"] for value in item["values"]]
        yield {"handle": item["handle"], "name": item["name"], "values": values, "ext": extended}


def templated(path: Path, count: int = _TEMPLATED_ROWS) -> Iterator[Row]:
    """Write questions about the kinds of product at the taxonomy's ends; a tenth of the kinds is for dev."""
    rng = random.Random(0)
    leaves = [row for row in categories(path) if row["leaf"] and row["id"].split("-")[0] in VERTICAL_CODES]
    for leaf in (rng.choice(leaves) for _ in range(count if leaves else 0)):
        origin, intent, template = rng.choice(_TEMPLATES)
        kind, colour, price = leaf["path"].rsplit(" > ", 1)[-1].lower(), rng.choice(_COLOURS), rng.choice((20, 50, 100))
        facets: Row = {"type": [kind]}
        facets |= {"color": [colour]} if "{colour}" in template else {}
        facets |= {"price_max": float(price)} if "{price}" in template else {}
        sources = ["reviews", "qa"] if origin == "taxonomy_ask_reviews" else ["catalog"]
        plan = {
            "mode": "keyword" if origin == "taxonomy_keyword" else "conversational", "intent": intent,
            "vertical": leaf["id"].split("-")[0], "category": leaf["path"], "facets": facets, "sources": sources,
        }  # fmt: skip
        text = template.format(kind=kind, colour=colour, price=price)
        yield {"text": text, "plan": plan, "origin": origin, "split": "dev" if held_out(leaf["path"]) else "train"}


def retail_products(path: Path) -> Iterator[Row]:
    """Yield the products of the catalogue."""
    import yaml

    for item in yaml.safe_load(path.read_text(encoding="utf-8")):
        kept = {"id": item["id"], "name": item["name"], "category": item["category"], "style": item.get("style", "")}
        yield kept | {"desc": item["description"], "price": item["price"], "gender": item.get("gender_affinity", "")}


def _partial(text: str, mode: str, intent: str, sources: list[str], origin: str, split: str = "train") -> Row:
    plan = {"mode": mode, "intent": intent, "facets": {}, "sources": sources}
    return {"text": text, "plan": plan, "supervised": ["mode", "intent", "sources"], "origin": origin, "split": split}


_ROWS: dict[str, Callable[..., Iterable[Any]]] = {
    make.__name__: make
    for make in (
        *(queryner, webshop, product_questions, bitext, clinc),
        *(categories, attributes, templated, retail_products),
    )
}
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
            _ROWS[table["rows"]],
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
