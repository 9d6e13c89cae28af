from pathlib import Path

from service.engines.version import folder_version


def test_another_content_name_or_choice_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one", encoding="utf-8")
    first = folder_version(tmp_path, "bfloat16")
    assert first == folder_version(tmp_path, "bfloat16")
    seen = {first, folder_version(tmp_path, "float32")}
    (tmp_path / "a").write_text("two", encoding="utf-8")
    seen.add(folder_version(tmp_path, "bfloat16"))
    (tmp_path / "a").rename(tmp_path / "b")
    seen.add(folder_version(tmp_path, "bfloat16"))
    assert len(seen) == 4


def test_a_folder_that_is_not_there_still_has_a_version(tmp_path: Path) -> None:
    assert isinstance(folder_version(tmp_path / "nowhere"), str)
