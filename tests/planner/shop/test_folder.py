"""Shop folders that are damaged, replaced in place or hostile: a refusal by name, and the service goes on."""

import json
import os
from pathlib import Path

import pytest

from service.planner.shop.folder import ShopFolder, ShopFolderError
from tests.faults.under_load import fake_server
from tests.planner.shop.test_in_shop import write_folder
from tests.processes import eventually
from tests.server_process import ServerProcess

NESTED = "[" * 100_000


@pytest.mark.parametrize("seal", ["{", "[]", "{}", '{"version": 1, "files": 7, "summary": {}}', NESTED])
def test_a_seal_that_is_none_is_refused_by_name(tmp_path: Path, seal: str) -> None:
    folder = write_folder(tmp_path / "shop")
    (folder / "shop.json").write_text(seal, encoding="utf-8")
    with pytest.raises(ShopFolderError, match=r"shop\.json is damaged"):
        ShopFolder.load(folder)
    with pytest.raises(ShopFolderError, match="no whole shop folder"):
        ShopFolder.load(tmp_path / "nowhere")


def test_a_file_that_the_seal_does_not_name_is_not_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop")
    content = json.loads((folder / "shop.json").read_text(encoding="utf-8"))
    del content["files"]["names.marisa"]
    (folder / "shop.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ShopFolderError, match=r"names\.marisa is not sealed"):
        ShopFolder.load(folder)


def test_a_folder_that_is_replaced_in_place_kills_no_service(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop", {f"zorvex{number}": "brand" for number in range(2000)})
    with fake_server(PEAKPLAN_SHOP_DIR=folder, PEAKPLAN_REPLICAS=1, FAKE_SECONDS=0) as server:

        def is_read(number: int) -> None:
            answer = server.post("/plan", {"query": f"zorvex{number} shoes", "deadline_ms": 2000}).json()
            assert answer["plan"]["facets"] == {"brand": [f"zorvex{number}"]}

        is_read(1)
        for path in folder.iterdir():
            os.truncate(path, 0)
        is_read(1999)
        assert server.control("/reload").status_code == 503
        _is_told(server, "shop.json is damaged")
        (folder / "shop.json").write_text(NESTED, encoding="utf-8")
        assert server.control("/reload").status_code == 503
        is_read(2)
        assert server.process.poll() is None


def _is_told(server: ServerProcess, words: str) -> None:
    eventually(lambda: any(words in line for line in server.lines), f"the log does not say {words!r}")
