"""The manifest of compiled artifacts: what was compiled, from what and by what, which decides whether they may run.

    manifest.json    this file
    tokenizer.json   the base's tokenizer and, in
    host.safetensors its embedding and LM head, so that an instance needs nothing of the base
    model.pt, neuron_config.json, weights/tp{rank}_sharded_checkpoint.safetensors    NxDI's

A NEFF belongs to one model, one configuration and one compiler. Where any of them differs the artifacts are refused
with the difference: NxDI would load them, or shard and compile for a quarter of an hour while an instance boots.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.engines.neuron.configuration import Chip
from service.engines.neuron.packages import SDK
from service.weights.model_card import folder_version
from service.weights.model_folder import read_card

FORMAT: Literal[2] = 2
FILE = "manifest.json"
TOKENIZER = "tokenizer.json"
HOST_WEIGHTS = "host.safetensors"
COMPILED_MODEL = "model.pt"
_HOW = "Compile it again for this instance (peakplan compile), or deploy the artifacts that belong to it"


class ManifestError(RuntimeError):
    """Raised for compiled artifacts that must not run here; the message names every difference and what to do."""


class Manifest(BaseModel):
    """The content of manifest.json. `arguments` are NeuronConfig's; `files` maps a relative path to its bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[2] = FORMAT
    model_id: str
    model: str = Field(description="digest of the model folder: adapter, heads, tree and card")
    base: str = Field(description="digest of the base's folder; empty for the default base, which is pinned by hash")
    chip: Chip
    sdk: str
    packages: dict[str, str] = Field(description="version of each Neuron package used")
    arguments: dict[str, Any]
    files: dict[str, int]

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a folder's manifest. Raises ManifestError when it is missing or not written by us."""
        path = folder / FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ManifestError(
                f"{path} cannot be read ({error.strerror}): nothing was compiled into {folder}. {_HOW}."
            ) from error
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in error.errors()
            )
            raise ManifestError(f"{path} is not a manifest of this version: {problems}. {_HOW}.") from error


def artifact_sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of every file below a folder except the manifest."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != FILE)
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def model_digest(model_dir: Path) -> str:
    """Return the digest of a model folder: of every file in it, the tree included."""
    return folder_version(model_dir)


def base_digest(model_dir: Path) -> str:
    """Return the digest of a model folder's base, if it is here: of every file in it."""
    base = model_dir / read_card(model_dir).base
    return folder_version(base) if base.is_dir() else ""


def check_manifest(
    folder: Path, model_dir: Path, packages: Mapping[str, str], least: Mapping[str, int], cores: int = 0
) -> Manifest:
    """Return the manifest of `folder` if its artifacts may serve `model_dir` under these Neuron packages.

    `least` are lengths that this instance needs, under NeuronConfig's names; `cores` is the number of NeuronCores of a
    replica, 0 for unknown. Raises ManifestError.
    """
    manifest = Manifest.read(folder)
    differences = [
        *_differences(manifest, model_dir, packages),
        *_short_lengths(manifest.arguments, least),
        *_file_differences(manifest, folder),
    ]
    spans = manifest.arguments.get("tp_degree")
    if cores and spans != cores:
        differences.append(f"it spans {spans} NeuronCores, and this replica has {cores}")
    if differences:
        raise ManifestError(
            f"The compiled model in {folder} is not for this instance: {'; '.join(differences)}. {_HOW}."
        )
    return manifest


def _differences(manifest: Manifest, model_dir: Path, packages: Mapping[str, str]) -> Iterator[str]:
    found = model_digest(model_dir)
    if manifest.model != found:
        yield f"it was compiled from model {manifest.model} ({manifest.model_id}), and {model_dir} is {found}"
    base = base_digest(model_dir)
    if base and manifest.base != base:
        yield f"it was compiled from another base ({manifest.base or 'the default one'}; {base} lies here)"
    if manifest.sdk != SDK:
        yield f"it was compiled with Neuron SDK {manifest.sdk}, and this service runs SDK {SDK}"
    for name in sorted({*manifest.packages, *packages}):
        compiled, here = manifest.packages.get(name, "none"), packages.get(name, "none")
        if compiled != here:
            yield f"it was compiled with {name} {compiled}, and {here} is here"


def _short_lengths(compiled: Mapping[str, Any], least: Mapping[str, int]) -> Iterator[str]:
    for name, wanted in least.items():
        if (found := compiled.get(name) or 0) < wanted:
            yield f"it was compiled for {name} {found}, and {wanted} is wanted"


def _file_differences(manifest: Manifest, folder: Path) -> Iterator[str]:
    found = artifact_sizes(folder)
    for name, size in manifest.files.items():
        if name not in found:
            yield f"{name} is missing"
        elif found[name] != size:
            yield f"{name} has {found[name]} bytes, and was written with {size}"
