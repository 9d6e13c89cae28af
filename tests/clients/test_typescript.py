"""The packages: what is in the wheel, and the TypeScript client beside the Python one."""

import functools
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from peakplan_client import CatalogueMapping, Client

from rehearsal.tools import client_types
from tests.clients import vectors
from tests.faults.under_load import fake_server
from tests.processes import eventually
from tests.server_process import serving
from tests.test_documents import blocks

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


HERE = Path(__file__).parent / "typescript"
NPM = shutil.which("npm", path=client_types.PATH)


@pytest.fixture(scope="module")
def package() -> Path:
    """Return the package's folder, with what it is built with."""
    if NPM is None:
        pytest.skip("Node is not installed: apt-get install nodejs npm")
    if not (client_types.FOLDER / "node_modules").exists():
        pytest.skip("the compiler is not installed: peakplan tools client-types")
    return client_types.FOLDER


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    """Run a command, which must succeed; return what it says."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, "PATH": client_types.PATH, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and pack the package, and install it into a folder of a user's, without a network."""
    folder = tmp_path_factory.mktemp("user")
    run(package, "npm", "run", "build")
    (packed,) = json.loads(run(package, "npm", "pack", "--json", "--pack-destination", folder))
    (folder / "package.json").write_text('{"type": "module", "private": true}', encoding="utf-8")
    run(folder, "npm", "install", "--offline", "--no-audit", "--no-fund", folder / packed["filename"])
    return folder


@pytest.mark.slow
def test_the_types_are_those_of_the_document(package: Path) -> None:
    assert package
    assert client_types.TYPES.read_text(encoding="utf-8") == client_types.generate(), "peakplan tools client-types"


@pytest.mark.slow
def test_the_package_holds_what_is_built_and_needs_nothing(installed: Path) -> None:
    (archive,) = installed.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        manifest = json.loads(packed.extractfile("package/package.json").read())  # type: ignore[union-attr]
    assert {"package/dist/index.js", "package/dist/index.d.ts", "package/README.md", "package/LICENSE"} <= set(names)
    assert all(name.startswith("package/dist/") or name.count("/") == 1 for name in names)
    assert "dependencies" not in manifest
    code = "".join(
        path.read_text(encoding="utf-8") for path in (installed / "node_modules/@peakplan/client/dist").glob("*.js")
    )
    assert "require(" not in code
    assert 'from "node:' not in code


@pytest.mark.slow
def test_it_works_in_node_with_a_real_service(installed: Path, planner_url: str, tmp_path: Path) -> None:
    names = ["client.test.mjs", "events.test.mjs", "experiments.test.mjs"]
    for name in names:
        shutil.copy(HERE / name, installed)
    shutil.copy(vectors.EXPERIMENTS, installed)
    experiment = {"PEAKPLAN_EXPERIMENT_NAME": "autumn", "PEAKPLAN_EXPERIMENT_ARMS": "control=50,2=30,rules=20"}
    with fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, FAKE_SECONDS=0, **experiment) as keeping:
        said = run(installed, "node", "--test", *names, PEAKPLAN_URL=planner_url, PEAKPLAN_KEEPS_EVENTS=keeping.url)
    plans = [json.loads(line) for line in (tmp_path / "plans.jsonl").read_text(encoding="utf-8").splitlines()]
    arms = {line["arm"]: line["source"] == "rules" for line in plans if "arm" in line}
    assert arms == {"control": False, "2": False, "rules": True}
    assert (tmp_path / "events.jsonl").read_text(encoding="utf-8").count('"B07"') == 1
    assert "fail 0" in said
    assert "skipped 0" in said


TRANSLATE = """
import { readFile } from "node:fs/promises";
import { translate } from "@peakplan/client";
const cases = JSON.parse(await readFile("cases.json", "utf8"));
const found = cases.map((one) => translate(one.plan, one.mapping, one.engine, one.question, { limit: one.limit }));
process.stdout.write(JSON.stringify(found));
"""


@pytest.mark.slow
def test_it_translates_plans_as_python_does(installed: Path) -> None:
    named = [case for case in vectors.named() if case["engine"] in vectors.ENGINES and case["mapping"]]
    cases = [*({**case, "limit": 10} for case in named), *vectors.drawn(1000)]
    (installed / "translate.mjs").write_text(TRANSLATE, encoding="utf-8")
    (installed / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    translated = json.loads(run(installed, "node", "translate.mjs"))
    assert len(translated) == len(cases)
    for case, found in zip(cases, translated, strict=True):
        assert found == json.loads(json.dumps(vectors.in_python(case))), json.dumps(case)
    assert sum(len(found["requests"]) for found in translated) > len(cases)
    assert any(found["notes"] for found in translated)


@pytest.mark.slow
def test_its_types_say_what_may_be_left_out_and_the_examples_of_the_documents_compile(
    installed: Path, package: Path
) -> None:
    shutil.copy(HERE / "types.ts", installed)
    examples = [block for block in blocks() if block.language == "ts"]
    assert len(examples) >= 2
    for number, example in enumerate(examples):
        (installed / f"example{number}.ts").write_text(example.text, encoding="utf-8")
    options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]
    names = ["types.ts", *(f"example{number}.ts" for number in range(len(examples)))]
    said = run(installed, "node", package / "node_modules/typescript/bin/tsc", *options, *names)
    assert said == "", "the compiler has nothing to say of them"


@contextmanager
def pages(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a folder on a port of its own, which takes events of any page, too; yield the origin and what came."""
    (folder / "index.html").write_text("<!doctype html><title>a shop</title>", encoding="utf-8")
    came: list[dict[str, Any]] = []

    class Shop(http.server.SimpleHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            self.send_response(204)
            self.send_header("access-control-allow-headers", "content-type")
            self.end_headers()

        def do_POST(self) -> None:
            came.extend(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(202)
            self.end_headers()
            self.wfile.write(b'{"refused": []}')

        def end_headers(self) -> None:
            self.send_header("access-control-allow-origin", "*")
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Shop, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()


@pytest.fixture
def browser() -> Iterator[Any]:
    from tests.api.page_visit import CHROMIUM, running_chromium

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install -y --no-install-recommends chromium")
    with running_chromium() as browser:
        yield browser


_IN_THE_PAGE = """async (url) => {
  const { Client, isPlanned } = await import("/node_modules/@peakplan/client/dist/index.js");
  const client = new Client(url, { deadlineMs: 2000, timeoutMs: 60000 });
  const { plan } = await client.plan("red leather boots under $80");
  const found = await client.plans(["red leather boots under $80", " "]);
  const events = [];
  for await (const each of client.answer("red leather boots under $80")) events.push(each);
  let first;
  for await (first of client.answer("red leather boots under $80")) break;
  const wrong = await client.plan(" ").catch((error) => error);
  return {
    max: plan.price.max, planned: found.map(isPlanned), name: wrong.name, detail: wrong.problem.detail,
    first: first.event, events: events.filter((each) => each.event !== "more").map((each) => each.event),
  };
}"""


@pytest.mark.slow
def test_it_works_in_a_page_of_another_origin(installed: Path, shipped_model: Path, browser: Any) -> None:
    with pages(installed) as (origin, _):
        settings = {"PEAKPLAN_MODEL_DIR": shipped_model, "PEAKPLAN_REPLICAS": 1, "PEAKPLAN_CORS_ORIGINS": origin}
        with serving(**settings) as server:
            page = browser.new_page()
            page.goto(origin)
            seen = page.evaluate(_IN_THE_PAGE, server.url)
            page.close()
    assert seen == {
        "max": 80, "planned": [True, False], "first": "plan", "events": ["plan", "options", "done"],
        "name": "InvalidRequestError", "detail": "query must hold at least one visible character.",
    }  # fmt: skip


_PUT_IN_THE_PAGE = """async ([url, names]) => {
  const { EventSender } = await import("/node_modules/@peakplan/client/dist/index.js");
  const sender = new EventSender(url, { lingerMs: 2 ** 30 });
  for (const name of names) sender.put({ action_name: "click", query_id: "48bf", event_id: name });
}"""


@pytest.mark.slow
def test_what_lingers_in_a_page_is_sent_when_the_page_is_left(installed: Path, browser: Any) -> None:
    names = [f"event-{number}" for number in range(5)]
    with pages(installed) as (origin, _), pages(installed) as (elsewhere, came):
        page = browser.new_page()
        page.goto(origin)
        page.evaluate(_PUT_IN_THE_PAGE, [elsewhere, names])
        assert not came
        page.goto("about:blank")
        eventually(lambda: [each["event_id"] for each in came] == names, "what lingered went with its page")
        page.close()
