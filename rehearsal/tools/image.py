"""The service's container image for a CPU, made without a Docker engine or a registry: an archive for `docker load`.

    python -m rehearsal.tools.image dist                # a part of `make dist`; minutes
    python -m rehearsal.tools.image dist --base IMAGE   # on a base that buildah has or may pull

The base is Debian 12 as debootstrap makes it, which needs root. Packages come as wheels, which are downloaded once; the
build checks the hashes of all but PyTorch's. The image is built twice, and the archives must be the same, byte by byte;
it says which file is not. Where buildah or debootstrap lacks, nothing is built, and that is said and no error.
"""

import argparse
import filecmp
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any, cast

from rehearsal.tools.licences import pinned
from service.requirement_parts import FILE, lines_of
from service.weights.base_weights import WHEEL

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "service" / "Dockerfile"
VERSION: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
PARTS = ("service", "torch")
FOR_A_CPU = dict(zip(("REQUIREMENTS", "TORCH"), PARTS, strict=True)) | {"REPLICA": "", "TRITON": ""}
BASE_PACKAGES = ("python3-minimal", "python3-venv", "libpython3.11")
_PIP = "pip==26.3"  # the build's own (service/Dockerfile)
_DEBIAN = "bookworm"
# What debootstrap takes from this machine, and what tells when it ran.
_OF_THIS_MACHINE = ("etc/hostname", "etc/resolv.conf", "etc/machine-id")
_LOGS = ("var/log/bootstrap.log", "var/log/dpkg.log", "var/log/alternatives.log", "var/log/apt")
_OF_THIS_DAY = (*_LOGS, "var/cache/ldconfig/aux-cache", "var/cache/apt", "var/lib/apt/lists")


class ImageError(RuntimeError):
    """No image could be made; the message says why."""


def run(*command: str | Path) -> str:
    """Return the standard output of a command that succeeds. Raises ImageError with its last words."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Store:
    """Images and containers in a folder of their own, so that nothing stays behind on the machine."""

    folder: Path

    def command(self, program: str) -> list[str]:
        """Return the first words of a command of buildah or podman on this store."""
        return [program, "--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]

    def buildah(self, *words: str | Path) -> str:
        """Run buildah; its standard output."""
        return run(*self.command("buildah"), *words)

    def has(self, image: str) -> bool:
        """Whether an image is in this store."""
        return image in self.buildah("images", "--format", "{{.Name}}").split()

    def make_base(self, image: str, packages: Sequence[str], *, epoch: int) -> None:
        """Make Debian with `packages` an image, with nothing in it of this machine or of the minute."""
        if self.has(image):
            return
        system = self.folder / "system"
        run("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", _DEBIAN, system)
        for name in (*_OF_THIS_MACHINE, *_OF_THIS_DAY):
            path = system / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        container = self.buildah("from", "scratch")
        self.buildah("add", container, system, "/")
        self.buildah("commit", "--rm", f"--timestamp={epoch}", container, image)
        shutil.rmtree(system)

    def python_of(self, image: str) -> str:
        """Return the version of an image's Python, 3.11.2 for instance."""
        container = self.buildah("from", "--quiet", "--pull=false", image)
        try:
            asked = ("python3", "-c", "import platform; print(platform.python_version())")
            return self.buildah("run", "--isolation", "chroot", container, "--", *asked)
        finally:
            self.buildah("rm", container)

    def download(self, python: str, parts: Sequence[str], packages: Sequence[str] = ()) -> None:
        """Download the wheels of parts of requirements-image.txt for a Python of this kind of machine."""
        minor = ".".join(python.split(".")[:2])
        marks = {"sys_platform": "linux", "platform_machine": platform.machine()}
        marks |= {"python_full_version": python, "python_version": minor}
        lines = [line for part in parts for line in lines_of(part, REPOSITORY / FILE)]
        words = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", minor]
        words += ["--dest", str(self.folder / "wheels"), *packages, *map(str, pinned(lines, marks))]
        index = os.environ.get("TORCH_INDEX")
        run(sys.executable, "-m", "pip", "download", *words, *(["--extra-index-url", index] if index else []))

    def build(
        self,
        tag: str,
        arguments: dict[str, str],
        *,
        epoch: int,
        file: Path = DOCKERFILE,
        context: Path = REPOSITORY,
        pip: str = "",
        layers: bool = False,
    ) -> str:
        """Build a Dockerfile with the wheels in this store, as if at `epoch`, and return the tag.

        `pip` is added to the configuration of pip, whose index is the wheels beside the build. With `layers` what an
        earlier build made of the same lines is taken from it.
        """
        configuration = self.folder / "pip.conf"
        configuration.write_text(f"[global]\nno-index = true\nfind-links = /wheels\n{pip}", encoding="utf-8")
        options = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--jobs", "2"]
        options += ["--volume", f"{self.folder}/wheels:/wheels:ro", "--secret", f"id=pip.conf,src={configuration}"]
        options += [f"--timestamp={epoch}", f"--layers={str(layers).lower()}"]
        for name, value in ({"SOURCE_DATE_EPOCH": str(epoch)} | arguments).items():
            options += ["--build-arg", f"{name}={value}"]
        self.buildah("bud", *options, "--file", file, "--tag", tag, context)
        return tag

    def empty(self) -> None:
        """Remove every image; what the storage mounted onto itself is unmounted, so that the folder may go."""
        self.buildah("rmi", "--all", "--force")
        for name in ("overlay", "vfs"):
            if os.path.ismount(self.folder / "root" / name):
                run("umount", self.folder / "root" / name)


def differences(one: Path, other: Path) -> list[str]:
    """Return the files that two archives of images have differently, a line each."""
    ones, others = _contents(one), _contents(other)
    found = []
    for name in sorted({*ones, *others}, key=str):
        (told, digest), (again, other_digest) = ones.get(name, ("", "")), others.get(name, ("", ""))
        if not told or not again:
            found.append(f"{name[1]} is in one of them alone")
        elif told != again:
            found.append(f"{name[1]}: {told} and {again}")
        elif digest != other_digest:
            found.append(f"{name[1]}: other bytes")
    return found


def _contents(path: Path) -> dict[tuple[int, str], tuple[str, str]]:
    """Return what an archive says of each file and its bytes' digest, by layer and name; last, the configuration."""
    found: dict[tuple[int, str], tuple[str, str]] = {}
    with tarfile.open(path) as archive:
        layers: list[str] = _manifest(archive)["Layers"]
        for number, layer in enumerate(layers):
            member = archive.getmember(layer)
            packed = _file(archive, archive.getmember(member.linkname) if member.issym() else member)
            with tarfile.open(fileobj=packed) as files:
                for one in files:
                    said = f"{one.type!r} {one.mode:o} {one.uid}:{one.gid} {one.size} {one.mtime} {one.linkname}"
                    bytes_ = (
                        file_digest(cast(BufferedReader, _file(files, one)), "sha256").hexdigest()
                        if one.isreg()
                        else ""
                    )
                    found[number, one.name] = said, bytes_
        config = _file(archive, archive.getmember(_manifest(archive)["Config"])).read().decode()
    return found | {(len(layers), "the configuration"): (config, "")}


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    image: dict[str, Any]
    (image,) = json.load(_file(archive, archive.getmember("manifest.json")))
    return image


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None
    return file


def why_not(base: str | None) -> str:
    """Return why no image can be made here, and what to do; "" when one can."""
    needed = ("buildah",) if base else ("buildah", "debootstrap")
    missing = [program for program in needed if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found: apt-get install --no-install-recommends {' '.join(missing)}"
    if base is None and os.geteuid() != 0:
        return "debootstrap needs root; IMAGE_BASE= names a base that buildah has or may pull"
    return ""


def make(folder: Path, work: Path, base: str | None) -> Path:
    """Build the image of HEAD twice, in a work folder, and return its archive in `folder`.

    Raises ImageError where that fails or the two are not the same.
    """
    revision, epoch = run("git", "-C", REPOSITORY, "log", "-1", "--format=%H %ct").split()
    context = work / "context"
    context.mkdir()
    run("sh", "-c", 'git -C "$0" archive HEAD | tar -x -C "$1"', REPOSITORY, context)
    store = Store(work)
    try:
        if base is None:
            base = "localhost/peakplan-base"
            store.make_base(base, BASE_PACKAGES, epoch=int(epoch))
        store.download(store.python_of(base), PARTS, (_PIP, WHEEL))
        arguments = FOR_A_CPU | {"BASE": base, "REVISION": revision}
        archives = []
        for turn in ("first", "second"):
            image = store.build("localhost/peakplan", arguments, epoch=int(epoch), context=context)
            pushed = work / "pushed.tar"
            store.buildah("push", "--quiet", image, f"docker-archive:{pushed}:peakplan:{VERSION}")
            archives.append(without_chance(pushed, work / f"{turn}.tar"))
            pushed.unlink()
    finally:
        store.empty()
    one, other = archives
    if not filecmp.cmp(one, other, shallow=False):
        raise ImageError("\n".join(["the image differs between two builds:", *differences(one, other)]))
    made = folder / f"peakplan-{VERSION}-image-linux-{platform.machine()}.tar.gz"
    with made.open("wb") as file:
        subprocess.run(["gzip", "--no-name", "--stdout", one], stdout=file, check=True)
    return made


def without_chance(pushed: Path, archive: Path) -> Path:
    """Write an archive anew without the names that buildah drew for its containers, and return it."""
    with tarfile.open(pushed) as source, tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as target:
        image = _manifest(source)
        config = json.load(_file(source, source.getmember(image["Config"])))
        config.pop("container", None)
        for part in ("config", "container_config"):
            config.get(part, {}).pop("Hostname", None)
        text = json.dumps(config, sort_keys=True).encode()
        called = f"{sha256(text).hexdigest()}.json"
        _add(target, called, len(text), BytesIO(text))
        for layer in dict.fromkeys(image["Layers"]):
            member = source.getmember(layer)
            _add(target, layer, member.size, _file(source, member))
        manifest = json.dumps(
            [{"Config": called, "RepoTags": [f"peakplan:{VERSION}"], "Layers": image["Layers"]}]
        ).encode()
        _add(target, "manifest.json", len(manifest), BytesIO(manifest))
    return archive


def _add(archive: tarfile.TarFile, name: str, size: int, file: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, file)


def main() -> int:
    """Make the image, or say why there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the archive goes")
    parser.add_argument("--base", default=os.environ.get("IMAGE_BASE") or None, help="a base of your own (IMAGE_BASE)")
    arguments = parser.parse_args()
    if reason := why_not(arguments.base):
        print(f"No container image is made: {reason}", file=sys.stderr)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="peakplan-image-", dir="/var/tmp") as work:
            made = make(arguments.folder, Path(work), arguments.base)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{made.name}: the same bytes twice, {made.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
