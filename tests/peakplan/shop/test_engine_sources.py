"""`peakplan shop learn` of running engines: PostgreSQL in earnest, the others by servers that speak their protocols."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from peakplan.shop.__main__ import main
from tests.peakplan.shop.test_learn import catalogue, learn, rows_of, write_lines
from tests.postgresql_server import postgresql

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
Answer = Callable[[str, str, Any], tuple[int, Any]]  # of method, path, body
COUNT = 240


def run(*words: str | Path) -> int:
    return main(["learn", "--quiet", *map(str, words)])


def sealed(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "shop.json").read_text(encoding="utf-8"))["summary"])


@pytest.fixture(scope="module")
def of_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the shop folder of the same products in a file."""
    folder = tmp_path_factory.mktemp("file")
    done = learn(write_lines(folder / "p.jsonl", catalogue(COUNT)), folder / "mine")
    assert done.returncode == 0, done.stderr
    return folder / "mine"


def assert_same(folder: Path, of_file: Path) -> None:
    """Check that a folder knows what the file's knows, and that nothing lies beside it."""
    assert sealed(folder)["products"] == COUNT
    assert {row["text"] for row in rows_of(folder / "lexicon.jsonl")} == {
        row["text"] for row in rows_of(of_file / "lexicon.jsonl")
    }
    assert rows_of(folder / "categories.jsonl") == rows_of(of_file / "categories.jsonl")
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(f"{folder.name}.")]


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[str, Any]]:
    """Yield an address and a connection: a table with a key, the same without one, products in columns."""
    with postgresql() as address:
        import psycopg

        host = dict(part.split("=", 1) for part in address.split())["host"]
        with psycopg.connect(address, autocommit=True) as connection:
            fields = "sku text PRIMARY KEY, title text, brand text, category text, price text, colour text, "
            connection.execute(f"CREATE TABLE products ({fields} stars numeric, in_stock boolean, search tsvector)")
            rows = [tuple(row.values()) for row in catalogue(COUNT)]
            connection.cursor().executemany(
                f"INSERT INTO products VALUES ({', '.join(['%s'] * 8)}, to_tsvector('simple', 'x'))", rows
            )
            connection.execute("CREATE SCHEMA shop")
            connection.execute('CREATE TABLE shop."all" AS SELECT * FROM products ORDER BY length(sku), sku')
            yield f"postgresql://shop@/postgres?host={host}", connection


@pytest.mark.parametrize("table", ["products", "shop.all"])
def test_a_table_of_postgresql_is_learnt_as_a_file_is(
    tmp_path: Path, database: tuple[str, Any], of_file: Path, table: str
) -> None:
    assert run(database[0], "--table", table, "--output", tmp_path / "mine") == 0

    assert_same(tmp_path / "mine", of_file)
    assert "search" not in sealed(tmp_path / "mine")["roles"]
    head = (tmp_path / "mine" / "mapping.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert f"learn postgresql:///postgres --table {table} --output mine" in head


def test_what_is_read_is_kept_while_a_question_is_open(tmp_path: Path, database: tuple[str, Any]) -> None:
    address, connection = database
    connection.execute("CREATE TABLE untold AS SELECT sku AS a, title AS b, title || '!' AS c FROM products")
    words = (address, "--table", "untold", "--output", tmp_path / "mine")
    assert run(*words) == 2
    connection.execute("DROP TABLE untold")

    assert run(*words, "--map", "b=title", "--map", "c=ignore") == 0
    assert sealed(tmp_path / "mine")["products"] == COUNT


@pytest.mark.parametrize(
    ("source", "more", "told"),
    [
        ("mysql://h/db", (), "mysql:// is none of opensearch://"),
        ("postgresql://h/db", (), "name a table with --table"),
        ("opensearch+http://127.0.0.1:1", (), "name the index or collection"),
        ("typesense+http://127.0.0.1:1/p", (), "--key-file"),
        ("elasticsearch+http://127.0.0.1:1/p", (), "try the same command again"),
        ("opensearch+http://127.0.0.1:1/p", (), "try the same command again"),
        ("opensearch://h:x/p", (), "is no address"),
    ],
)
def test_what_cannot_be_read_is_told(
    tmp_path: Path, source: str, more: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source, *more, "--output", tmp_path / "mine") == 1
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_an_unknown_table_is_told_and_no_password(
    tmp_path: Path, database: tuple[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    address = database[0].replace("shop@", "shop:secret@")
    assert run(address, "--table", "none", "--output", tmp_path / "mine") == 1
    said = capsys.readouterr().err
    assert 'relation "none" does not exist' in said
    assert "secret" not in said


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Serve on loopback what `answer` says of (method, path, body)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            given = json.loads(body) if body else None
            status, content = answer(self.command, self.path, given)
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", self.headers.get("accept", "application/json").split(",")[0])
            self.send_header("x-elastic-product", "Elasticsearch")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=one.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{one.server_port}"
    finally:
        one.shutdown()
        thread.join()
        one.server_close()


def hits(first: int, size: int) -> list[dict[str, Any]]:
    found = [
        {"_id": row["sku"], "_source": {name: value for name, value in row.items() if name != "sku"}, "sort": [at]}
        for at, row in enumerate(catalogue(COUNT))
    ]
    return found[first : first + size]


@pytest.mark.parametrize("engine", ["opensearch", "elasticsearch"])
def test_an_index_is_scrolled(tmp_path: Path, of_file: Path, engine: str) -> None:
    places = {"next": 0}

    def answer(method: str, path: str, _: Any) -> tuple[int, Any]:
        if method == "DELETE":
            return 200, {"succeeded": True}
        if not path.startswith("/_search/scroll"):
            assert path.startswith("/things/_search")
            assert "scroll=" in path
            places["next"] = 0
        found = hits(places["next"], 100)
        places["next"] += 100
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        return 200, {"_scroll_id": "s", "_shards": shards, "hits": {"hits": found}}

    with server(answer) as host:
        assert run(f"{engine}+http://{host}/things", "--output", tmp_path / "mine", "--map", "id=id") == 0
    assert_same(tmp_path / "mine", of_file)


def test_an_index_that_breaks_off_is_told_and_read_anew(
    tmp_path: Path, of_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"left": 1}

    def answer(method: str, path: str, _: Any) -> tuple[int, Any]:
        if method == "DELETE":
            return 200, {"succeeded": True}
        if not answers["left"]:
            return 400, {"error": {"type": "x", "reason": "broken"}, "status": 400}
        answers["left"] -= 1
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        found = hits(0, COUNT) if "/things/_search" in path else []
        return 200, {"_scroll_id": "s", "_shards": shards, "hits": {"hits": found}}

    key = tmp_path / "key"
    key.write_text("abc\n")
    with server(answer) as host:
        words = (f"elasticsearch+http://{host}/things", "--output", tmp_path / "mine", "--key-file", key)
        assert run(*words) == 1
        assert "try the same command again" in capsys.readouterr().err
        answers["left"] = 2
        assert run(*words) == 0
    assert_same(tmp_path / "mine", of_file)


def test_typesense_is_exported(tmp_path: Path, of_file: Path) -> None:
    def answer(_: str, path: str, __: Any) -> tuple[int, Any]:
        if not path.startswith("/collections/things/documents/export"):
            return 404, {"message": "Not Found"}
        return 200, "\n".join(json.dumps(row) for row in catalogue(COUNT))

    key = tmp_path / "key"
    key.write_text("abc\n")
    with server(answer) as host:
        words = ("--output", tmp_path / "mine", "--key-file", key)
        assert run(f"typesense+http://{host}/others", *words) == 1
        assert run(f"typesense+http://{host}/things", *words) == 0
    assert_same(tmp_path / "mine", of_file)
