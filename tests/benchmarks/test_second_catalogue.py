"""The second catalogue's benchmark, over files that are made here in the form of WANDS (its README and notebook)."""

import json
from pathlib import Path

import pytest

from benchmarks import second_catalogue
from benchmarks.second_catalogue import bring, git_object, measure, write_judgements, write_products
from service.settings.choices import SHIPPED_MODEL
from training.fetch_data import FetchError, Source

KINDS = {"Recliners": "recliner", "Accent Pillows": "throw pillow", "Espresso Machines": "espresso machine"}
COLORS = ("turquoise", "beige", "black", "green", "ivory", "red")


def table(path: Path, names: list[str], rows: list[list[str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join("\t".join(row) for row in [names, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Sixty products of three kinds in six colours, and a query for each kind in turquoise."""
    names = ["product_id", "product_name", "product_class", "category hierarchy", "product_description"]
    names += ["product_features", "rating_count", "average_rating", "review_count"]
    products: list[list[str]] = []
    labels: list[list[str]] = []
    for number in range(60):
        kind, color = list(KINDS)[number % 3], COLORS[number // 3 % 6]
        title = f"{color} {KINDS[kind]} no. {number}"
        features = f"color : {color}|Care Instructions: wipe clean|color : second colour"
        place = f"Home / {kind}" if number else ""  # one product has no path
        products.append([str(number), title, kind, place, f"A {title}.", features, "3.0", "4.5", "3.0"])
        for query, wanted in enumerate(KINDS):
            grade = "Exact" if (kind, color) == (wanted, "turquoise") else "Partial" if kind == wanted else "Irrelevant"
            labels.append([str(len(labels)), str(query), str(number), grade])
    queries = [[str(query), f"turquoise {KINDS[kind]}", kind] for query, kind in enumerate(KINDS)]
    return {
        "product": table(tmp_path / "product.csv", names, products),
        "query": table(tmp_path / "query.csv", ["query_id", "query", "query_class"], queries),
        "label": table(tmp_path / "label.csv", ["id", "query_id", "product_id", "label"], labels),
    }


def test_products_keep_their_path_and_the_first_value_of_each_attribute(files: dict[str, Path], tmp_path: Path) -> None:
    assert write_products(files["product"], tmp_path / "products.jsonl") == 60
    first, second, *_ = map(json.loads, (tmp_path / "products.jsonl").read_text(encoding="utf-8").splitlines())
    assert first["category"] == ["Recliners"]  # what has no path has a class
    assert second["category"] == ["Home", "Accent Pillows"]
    assert second["feature_color"] == "turquoise"
    assert second["feature_care_instructions"] == "wipe clean"
    assert second["rating"] == 4.5


def test_judgements_are_graded_and_queries_keep_their_category(files: dict[str, Path], tmp_path: Path) -> None:
    asked = write_judgements(files, tmp_path / "judgements.tsv")
    lines = [line.split("\t") for line in (tmp_path / "judgements.tsv").read_text(encoding="utf-8").splitlines()]
    assert asked["0"] == ("turquoise recliner", "Recliners")
    assert len(lines) == 180
    assert {grade for _, _, grade in lines} == {"0", "1", "2"}


def test_the_whole_figure_by_rule(files: dict[str, Path]) -> None:
    figure = measure(files, SHIPPED_MODEL, with_model=False)
    assert figure["products"] == 60
    assert figure["search"]["questions"] == 3
    assert set(figure["search"]["ways"]) == {"raw words", "rules", "rules with the shop folder"}
    assert figure["first_kind"]["rules"]["queries"] == 3
    assert figure["first_kind"]["rules"]["right"]["share"] >= 1 / 3 - 1e-4  # so small a shop leaves the others open
    assert figure["first_kind"]["rules"]["wrong"]["share"] == 0


def test_a_file_of_another_content_is_refused_and_one_that_is_right_is_not_fetched(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("httpx.get", lambda *_, **__: pytest.fail("it is there"))
    source = Source(second_catalogue.REPOSITORY, second_catalogue.REVISION, "dataset/query.csv")
    kept = source.place(tmp_path / "data")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(files["query"].read_bytes())
    assert bring(tmp_path / "data", {"query": git_object(kept)}) == {"query": kept}
    with pytest.raises(FetchError, match="git object"):
        bring(tmp_path / "data", {"query": "0" * 40})


def test_git_names_content_as_we_do(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert git_object(tmp_path / "empty") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
