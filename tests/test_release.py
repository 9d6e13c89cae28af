"""A release is whole and signed, or `.ci/release check` says why not; keys here are thrown away."""

import subprocess
from pathlib import Path

import pytest

from rehearsal.tools import licences

RELEASE = Path(__file__).parents[1] / ".ci" / "release"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RELEASE, *map(str, arguments)], capture_output=True, text=True, check=False)


def key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder that is signed, `signers` beside it."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("peakplan.whl", "linux-x86_64-avx2.so"):
        (folder / name).write_text(name, encoding="utf-8")
    signing = key(tmp_path / "key")
    public = signing.with_suffix(".pub").read_text(encoding="utf-8")
    (tmp_path / "signers").write_text(f'release@peakplan namespaces="peakplan-release" {public}', encoding="utf-8")
    assert run("sign", signing, folder).returncode == 0
    return folder


def test_what_was_signed_is_whole(release: Path) -> None:
    done = run("check", release.parent / "signers", release)
    assert (done.returncode, done.stdout) == (0, "2 files, as they were signed.\n")


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "another key", "no signature"])
def test_what_was_not_is_refused(release: Path, harm: str) -> None:
    library = release / "linux-x86_64-avx2.so"
    if harm == "changed":
        library.write_text("another", encoding="utf-8")
    elif harm == "missing":
        library.unlink()
    elif harm == "added":
        (release / "setup.py").write_text("", encoding="utf-8")
    elif harm == "another key":
        assert run("sign", key(release.parent / "other"), release).returncode == 0
    else:
        (release / "SHA256SUMS.sig").unlink()
    done = run("check", release.parent / "signers", release)
    assert done.returncode == 1
    assert "do not install" in done.stderr or "not part of what was signed: setup.py" in done.stderr


def test_every_package_that_serving_installs_has_a_licence_that_may_be_shipped() -> None:
    """`peakplan tools sbom`, and with it `make dist`, ends where one has not."""
    refused = {name: licence for name, (_, licence) in licences.licences().items() if not licences.is_allowed(licence)}
    assert refused == {}
    assert not licences.is_allowed("LGPL-3.0-only")
    assert not licences.is_allowed("")
