"""The release's image: why none is made is said in words, and what differs between two is named, file by file."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from rehearsal.tools import image, licences
from service.requirement_parts import FILE, lines_of


def layer(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Return a layer with files of these bytes and times."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, (text, time) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), time
            archive.addfile(member, io.BytesIO(text))
    return packed.getvalue()


def archive(path: Path, *layers: bytes, drawn: str = "") -> Path:
    """Write an archive as `buildah push` does; `drawn` is what it calls its container."""
    config = json.dumps({"container": drawn, "config": {"Hostname": drawn, "User": "10001"}}).encode()
    named = {f"{hashlib.sha256(text).hexdigest()}.tar": (text, 0) for text in layers}
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["localhost/any"], "Layers": list(named)}]).encode()
    path.write_bytes(layer({"manifest.json": (manifest, 0), "c.json": (config, 0), **named}))
    return path


@pytest.mark.parametrize(
    ("programs", "base", "reason"),
    [
        ((), None, "buildah and debootstrap not found: apt-get install"),
        (("buildah",), None, "debootstrap not found"),
        (("debootstrap",), "python:3.11", "buildah not found"),
        (("buildah",), "python:3.11", ""),
    ],
)
def test_without_its_programs_no_image_is_made_and_it_says_why(
    programs: tuple[str, ...], base: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    found = image.why_not(base)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_release_without_an_image_is_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["image", str(tmp_path)])
    assert image.main() == 0
    assert "No container image is made: buildah and debootstrap not found" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_two_images_have_differently_is_named(tmp_path: Path) -> None:
    same = layer({"etc/passwd": (b"root", 1)})
    one = layer({"a": (b"1", 1), "b": (b"1", 1), "c": (b"1", 1), "same": (b"1", 1)})
    other = layer({"a": (b"2", 1), "b": (b"1", 2), "d": (b"1", 1), "same": (b"1", 1)})
    found = image.differences(archive(tmp_path / "one.tar", same, one), archive(tmp_path / "other.tar", same, other))
    assert [line.partition(":")[0] for line in found] == [
        "a",
        "b",
        "c is in one of them alone",
        "d is in one of them alone",
    ]
    assert found[0] == "a: other bytes"
    assert found[1].endswith("1 2 "), "its size and time"


def test_what_buildah_draws_is_in_no_archive(tmp_path: Path) -> None:
    """The name of a container and its host differ from build to build, and nothing reads them."""
    same = layer({"etc/passwd": (b"root", 1)})
    pushed = [archive(tmp_path / f"{drawn}.tar", same, drawn=drawn) for drawn in ("a", "b")]
    assert "the configuration" in image.differences(*pushed)[0]
    one, other = (image.without_chance(each, each.with_suffix(".again")) for each in pushed)
    assert one.read_bytes() == other.read_bytes()
    assert image.differences(one, other) == []
    with tarfile.open(one) as kept:
        (manifest,) = json.load(kept.extractfile("manifest.json"))  # type: ignore[arg-type]
        assert manifest["RepoTags"] == [f"peakplan:{image.VERSION}"]
        assert json.load(kept.extractfile(manifest["Config"])) == {"config": {"User": "10001"}}  # type: ignore[arg-type]


def test_wheels_are_those_of_the_image_s_python() -> None:
    """redis needs async-timeout before Python 3.11.3, which Debian 12 has; pip would ask the Python that runs it."""
    lines = lines_of("service", image.REPOSITORY / FILE)
    marks = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11"}
    older, newer = (licences.pinned(lines, marks | {"python_full_version": full}) for full in ("3.11.2", "3.11.9"))
    assert {release.name for release in set(older) - set(newer)} == {"async-timeout"}
