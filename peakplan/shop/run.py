"""One run of `peakplan shop learn`: read, count, learn, enrich, report. What an earlier one did is kept."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from peakplan_client.mapping import CatalogueMapping
from peakplan_client.shop import DATABASE

from peakplan.shop.chunks import Chunks, fingerprint, shown, write_whole
from peakplan.shop.counting import Counts
from peakplan.shop.enriching import Enricher
from peakplan.shop.fields import plain_name
from peakplan.shop.finding import index
from peakplan.shop.kinds import Evidence
from peakplan.shop.lexicon import Learnt, tree
from peakplan.shop.mapping_file import as_yaml, learnt_mapping
from peakplan.shop.merging import BadRow
from peakplan.shop.products import flat
from peakplan.shop.report import Findings, Judge, render, score
from peakplan.shop.roles import Roles, RolesError, find_roles
from peakplan.shop.sources import SourceError, rows
from service.planner.shop.folder import seal, write_lexicon
from service.planner.spelling import sounds

_SAMPLE = 5000  # first rows, whose fields tell their roles, ...
_EVERY = 100  # ... and every so-manieth after
_MOST_SAMPLED = 30_000
_MOST_SAME = 100  # values of a field that the report shows


@dataclass(frozen=True, slots=True)
class Task:
    """What to learn from, and where to."""

    source: Path
    output: Path
    given: Mapping[str, str]
    table: str | None = None
    currency: str | None = None
    index: str = "products"
    quiet: bool = False
    command: str = "peakplan shop learn"
    name: str = ""  # of the catalogue, for people, where the file's own says nothing


@dataclass(frozen=True, slots=True)
class Done:
    """What a run has made: `notes` for people."""

    output: Path
    products: int
    bad: list[list[Any]]  # line and reason
    bad_count: int
    roles: Roles
    summary: dict[str, Any]
    notes: list[str]


def learn(task: Task) -> Done:
    """Write the shop folder, whole or not at all. Raises SourceError, RolesError, OSError.

    Beside it stands `<output>.partial` until it is whole: another run with the same file goes on there.
    """
    if task.output.exists() and not (task.output / "shop.json").is_file() and any(task.output.iterdir()):
        raise SourceError(f"{task.output} is there and is no shop folder: name another --output")
    roles, total = _roles(task)
    partial = task.output.with_name(f"{task.output.name}.partial")
    _prepare(partial, fingerprint(task.source, roles, task.table))
    chunks = Chunks(partial)
    chunks.read(task.source, roles, task.table, total, quiet=task.quiet)
    state = chunks.state
    if state["bad_count"] >= state["products"]:
        first = "; ".join(f"line {line} {reason}" for line, reason in state["bad"][:3]) or "it is empty"
        few = f"only {state['products']} products beside {state['bad_count']} rows that are none"
        raise SourceError(f"{task.source} holds {few if state['products'] else 'no product'}: {first}")
    learnt = Learnt(_count(chunks, task.quiet))
    return _finish(task, roles, chunks, partial, learnt)


def _roles(task: Task) -> tuple[Roles, int | None]:
    """Return the roles of the fields, and how many rows there are if that is known by now."""
    sample: list[dict[str, Any]] = []
    number = 0
    for number, found in enumerate(rows(task.source, table=task.table), 1):
        if not isinstance(found, BadRow) and (number <= _SAMPLE or number % _EVERY == 0):
            sample.append(dict(flat(found[1])))
        if len(sample) >= _MOST_SAMPLED:
            break
    if not sample:
        bad = [each for each in islice(rows(task.source, table=task.table), 1) if isinstance(each, BadRow)]
        told = f" (line {bad[0].line} {bad[0].reason})" if bad else ""
        raise RolesError(f"{task.source} holds no row{told}: is this the catalogue's file?")
    return find_roles(sample, task.given), None if len(sample) >= _MOST_SAMPLED else number


def _prepare(partial: Path, mark: str) -> None:
    """Keep what an earlier run of the same file left; start afresh otherwise."""
    note = partial / "run.json"
    if note.is_file() and note.read_text(encoding="utf-8") == mark:
        return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_whole(note, mark.encode())


def _count(chunks: Chunks, quiet: bool) -> Counts:
    counts = Counts()
    with shown(chunks.each(), "counting", chunks.state["chunks"], quiet=quiet) as bar:
        for products in bar:
            for one in products:
                counts.add(one)
            counts.trim()
    return counts


def _finish(task: Task, roles: Roles, chunks: Chunks, partial: Path, learnt: Learnt) -> Done:
    """Write the files beside their place, seal them, and move them there."""
    state = chunks.state
    draft = partial / "folder"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    code = task.currency or next((code for code, _ in learnt.counts.currencies.most_common(1)), None)
    mapping, notes = learnt_mapping(learnt, roles, task.index, code)
    notes += [*roles.notes, *_seen(learnt, roles)]
    if roles.price and code is None:
        notes.append("no price says its currency: name it with --currency USD, or prices in another are not filtered")
    (draft / "mapping.yaml").write_text(as_yaml(mapping, task.command), encoding="utf-8")
    _write_rows(draft / "lexicon.jsonl", (entry.row() for entry in learnt.entries))
    _write_rows(draft / "categories.jsonl", categories := tree(learnt.counts))
    write_lexicon(draft, [entry.row() for entry in learnt.entries], learnt.words, sounds(learnt.words))
    with task.source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    summary = {
        "products": state["products"],
        "bad_rows": state["bad_count"],
        "categories": len(categories),
        "entries": len(learnt.entries),
        "words": len(learnt.words),
        "roles": roles.told(),
        "notation": {name: list(each) for name, each in roles.notation.items()},
        "kinds": roles.kind_counts,
        "unused": roles.unused,
        "source_sha256": digest,
    }
    index(task.source, CatalogueMapping.model_validate(mapping), summary, draft / DATABASE, task.table)
    findings = _enrich(task, roles, chunks, learnt, draft)
    same = [(name, right, others) for name, values in _same_values(learnt) for right, others in values]
    (draft / "report.html").write_text(
        render(findings, same, [*roles.unused, *notes], task.name or task.source.name), encoding="utf-8"
    )
    summary |= {"score": score(findings), "findings": dict(findings.counts)}
    write_whole(draft / "bad_rows.tsv", "".join(f"{line}\t{why}\n" for line, why in state["bad"]).encode())
    seal(draft, summary)
    _move(draft, task.output)
    shutil.rmtree(partial)
    return Done(task.output, state["products"], state["bad"], state["bad_count"], roles, summary, notes)


def _seen(learnt: Learnt, roles: Roles) -> Iterator[str]:
    """Yield what was seen of prices and variants that is worth knowing."""
    counts = learnt.counts.products
    if several := counts["several rows"]:
        yield f"{several:,} products have variants in rows of their own: each is one product with the values of all"
    if ranges := counts["ranges"]:
        yield f"{ranges:,} products have several prices: the lowest counts"
    if roles.price and re.search(r"cents?$|minor", plain_name(roles.price)):
        yield f"{roles.price} counts cents: index the price in whole units, which plans compare"
    if roles.price and counts["price"] < 0.98 * counts["all"]:
        yield f"{roles.price} is read for {counts['price']:,} of {counts['all']:,} products"


def _enrich(task: Task, roles: Roles, chunks: Chunks, learnt: Learnt, draft: Path) -> Findings:
    """Write enriched.jsonl and what tells of categories, and judge every product."""
    judge, evidence = Judge(learnt, roles), Evidence(learnt.counts)
    for products in chunks.each():
        for one in products:
            judge.gather(one)
            evidence.add(one)
    judge.settle()
    evidence.write(draft)
    enricher = Enricher(learnt, roles, evidence.guess)
    with (
        (draft / "enriched.jsonl").open("w", encoding="utf-8") as file,
        shown(chunks.each(), "judging", chunks.state["chunks"], quiet=task.quiet) as bar,
    ):
        for products in bar:
            for one in products:
                found = list(enricher.rows(one))
                judge.judge(one, found)
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    return judge.findings


def _same_values(learnt: Learnt) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Yield the fields with those of their values that are written in several ways."""
    for name, means in (("brand", learnt.brand_of), *learnt.value_of.items()):
        ways: dict[str, list[str]] = {}
        for written, right in means.items():
            if written != right:
                ways.setdefault(right, []).append(written)
        yield name, sorted(ways.items(), key=lambda each: -len(each[1]))[:_MOST_SAME]


def _write_rows(path: Path, found: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in found:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _move(draft: Path, output: Path) -> None:
    """Put a folder in its place; what was there goes only once it is whole."""
    old = output.with_name(f"{output.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        os.replace(output, old)
    os.replace(draft, output)
    shutil.rmtree(old, ignore_errors=True)
