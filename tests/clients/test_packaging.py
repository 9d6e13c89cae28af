"""The client as an outside user installs it, and its example."""

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from peakplan_client import CatalogueMapping, Client

CLIENTS = Path(__file__).parents[2] / "clients"


def test_a_wheel_holds_the_package_and_imports_without_the_house(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e .[test]")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(CLIENTS)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    assert {"peakplan_client/py.typed", "peakplan_client/shop.yaml", "peakplan_client/engines/vespa.py"} <= set(files)
    assert {"peakplan_client/sample/products.jsonl.gz", "peakplan_client/sample/LICENSE"} <= set(files)
    assert all(name.startswith(("peakplan_client/", "peakplan_client-")) for name in files)

    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import peakplan_client.shop; "
        "assert '.whl' in peakplan_client.__file__, peakplan_client.__file__; "
        "assert not {'service', 'infra', 'torch', 'rehearsal'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "langchain_retriever", CLIENTS / "examples" / "langchain_retriever.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain_core", *(each for each in sys.modules if each.startswith("langchain_core."))):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install langchain-core"):
        example()


@pytest.mark.filterwarnings("ignore")  # LangChain's own
def test_the_retriever_of_the_example_retrieves() -> None:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed: pip install -r requirements-dev.txt")
    searched: list[Any] = []

    def search(body: Any) -> Sequence[Mapping[str, Any]]:
        searched.append(body)
        return [{"title": "Red boots", "price": 50}]

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"request_id": "r", "plan": {"queries": ["red boots"], "price": {"max": 80}}})

    for transport in (httpx.MockTransport(answer), httpx.MockTransport(lambda _: httpx.Response(404))):
        retriever = example().PeakplanRetriever(
            client=Client("http://planner", transport=transport),
            mapping=CatalogueMapping.load(CLIENTS / "examples" / "mapping.yaml"),
            engine="opensearch",
            search=search,
        )
        (document,) = retriever.invoke("red boots under $80")
        assert document.page_content == "Red boots"
        assert document.metadata["price"] == 50

    planned, raw = searched
    assert planned["query"]["bool"]["filter"] == [{"range": {"price": {"lte": 80}}}]
    assert "filter" not in raw["query"]["bool"]
