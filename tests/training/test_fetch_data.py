"""Outsiders' data: each set is said with its licence, checked by digest, and becomes rows that the mix reads."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from training import fetch_data
from training.data import rows
from training.fetch_data import DATASETS, Dataset, FetchError, Source, described, make_data

GOALS = Source("owner/name", "abc", "goals.json", "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1")


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_every_file_of_the_mix_has_a_set_that_makes_it_and_every_set_a_licence() -> None:
    read = {
        "queryner_train", "queryner_dev", "plan_real_partial", "clinc_train_sample", "plan_synth_taxonomy",
        "taxonomy_categories", "taxonomy_attributes", "aws_retail_products",
    }  # fmt: skip
    assert {dataset.makes for dataset in DATASETS} == read
    for dataset in DATASETS:
        assert dataset.licence
        assert dataset.sources or dataset.brought
        assert dataset.licence in described(dataset)


def test_labels_are_joined_with_the_queries_that_one_brings(tmp_path: Path) -> None:
    labels = [{"example_id": 1, "labels": ["B-color", "B-core_product_type", "I-core_product_type"]}]
    labels += [{"example_id": 2, "labels": ["O"]}, {"example_id": 3, "labels": ["O", "B-color"]}]
    file = put(tmp_path, "train.jsonl", "\n".join(map(json.dumps, labels)))
    queries = put(tmp_path, "esci-queries.tsv", "1\tRed duvet cover\n2\ttwo words\n")

    [row] = fetch_data.queryner(file, queries)
    assert row["query"] == "red duvet cover"
    assert row["spans"] == [["color", "red", 0, 1], ["core_product_type", "duvet cover", 1, 3]]


def test_instructions_keep_their_own_split_and_come_once(tmp_path: Path) -> None:
    texts = [f"i want lamp {number}" for number in range(1502)] + ["i want lamp 3", "i want lamp 700"]
    found = {row["text"]: row["split"] for row in fetch_data.webshop(put(tmp_path, "goals.json", json.dumps(texts)))}

    assert len(found) == 1002
    assert (found["i want lamp 500"], found["i want lamp 1500"]) == ("dev", "train")
    assert "i want lamp 3" not in found, "it is in WebShop's test"


def test_questions_have_the_sources_of_their_evidence(tmp_path: Path) -> None:
    head = "question\tcandidate\tlabel\tsource\n"
    lines = "is it loud?\tx\t1\treview\nis it loud?\ty\t1\tCQA\nis it loud?\tz\t0\tbullet\nis it red?\tz\t0\tbullet\n"
    het = put(tmp_path, "hetPQA/evidence_ranking/dev.csv", head + lines)
    semi = put(tmp_path, "semiPQA/attribute_ranking/dev.csv", "question\tlabel\nhow long is it?\t1\n")
    found = {row["text"]: row for row in fetch_data.product_questions(het, semi)}

    assert found["is it loud?"]["plan"]["sources"] == ["qa", "reviews"]
    assert found["how long is it?"]["plan"]["sources"] == ["catalog"]
    assert found["how long is it?"]["origin"] == "pqa_semiPQA"
    assert "sources" not in found["is it red?"]["supervised"]


def test_the_taxonomy_becomes_categories_attributes_and_questions(tmp_path: Path) -> None:
    def category(number: int, name: str, *, leaf: bool) -> dict[str, object]:
        path = f"Home & Garden > {name}"
        own = {"id": f"gid://shopify/TaxonomyCategory/hg-{number}", "full_name": path}
        return own | {"children": [] if leaf else [{}], "attributes": [{"handle": "color"}]}

    listed = [category(1, "Lighting", leaf=False), *(category(n, f"Lamps {n}", leaf=True) for n in range(2, 40))]
    whole = put(tmp_path, "categories.json", json.dumps({"verticals": [{"categories": listed}]}))
    named = {"handle": "color", "name": "Color", "values": [{"name": "Red"}]}
    named |= {"extended_attributes": [{"handle": "shade"}]}
    said = put(tmp_path, "attributes.json", json.dumps({"attributes": [named]}))

    assert next(fetch_data.categories(whole)) == {
        "id": "hg-1", "path": "Home & Garden > Lighting", "leaf": False, "attrs": ["color"],
    }  # fmt: skip
    assert list(fetch_data.attributes(said)) == [
        {"handle": "color", "name": "Color", "values": ["Red"], "ext": ["shade"]}
    ]
    made = list(fetch_data.templated(whole, 400))
    split = {row["plan"]["category"]: row["split"] for row in made}
    assert set(split.values()) == {"train", "dev"}
    assert all(split[row["plan"]["category"]] == row["split"] for row in made)
    example = rows.synthetic_example(next(row for row in made if "under" in row["text"] and row["plan"]["facets"]))
    assert example.price[1] is not None
    assert {span.facet for span in example.draft.spans} == {"color", "type"}


def test_clear_utterances_are_sampled_and_help_desk_intents_mapped(tmp_path: Path) -> None:
    train = [[f"{intent} {n}", intent] for intent in ("weather", "order_status", "yes") for n in range(30)]
    whole = put(tmp_path, "full.json", json.dumps({"train": train, "oos_train": [["hm", "oos"]]}))
    clinc = list(fetch_data.clinc(whole))
    assert {(row["clinc_intent"], row["label"]) for row in clinc} == {
        ("weather", "out_of_scope"), ("order_status", "order_status"), ("oos", "out_of_scope"),
    }  # fmt: skip
    assert len(clinc) == 15 + 30 + 1

    bitext = fetch_data.bitext(
        put(tmp_path, "b.csv", "utterance,intent\ni lost my password,recover_password\nx,unknown\n")
    )
    assert [row["plan"]["intent"] for row in bitext] == ["account"]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, ...]:
    """Reduce the sets to one that is fetched and one that is brought."""
    webshop = next(dataset for dataset in DATASETS if dataset.name == "WebShop")
    bitext = next(dataset for dataset in DATASETS if dataset.brought and not dataset.sources)
    sets = (replace(webshop, sources=(GOALS,), makes="webshop"), bitext)
    monkeypatch.setattr(fetch_data, "DATASETS", sets)
    return sets


def test_what_cannot_be_fetched_is_asked_for_and_nothing_is_fetched_twice(
    tmp_path: Path, two: tuple[Dataset, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_data, "DATASETS", (replace(two[0], sources=(replace(GOALS, sha256=None),)), two[1]))
    asked: list[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        return json.dumps(["x"] * 500 + ["a lamp"]).encode()

    [missing] = make_data(tmp_path, get)
    assert f"bring {tmp_path}/upstream/bitext.csv" in missing
    assert [row["text"] for row in rows.read_rows(tmp_path / "webshop.jsonl.gz")] == ["a lamp"]
    put(tmp_path, "upstream/bitext.csv", "utterance,intent\nhello,review\n")
    assert make_data(tmp_path, get) == []
    assert len(asked) == 1
    assert "owner/name/abc/goals.json" in asked[0]


@pytest.mark.usefixtures("two")
def test_a_file_of_another_digest_or_none_at_all_leaves_nothing_behind(tmp_path: Path) -> None:
    missing = make_data(tmp_path, lambda _: b"changed")
    assert any("is not the file that we know" in problem and "upstream" in problem for problem in missing)

    def fails(url: str) -> bytes:
        raise FetchError(f"{url} cannot be fetched: no network")

    assert any("no network" in problem for problem in make_data(tmp_path, fails))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
