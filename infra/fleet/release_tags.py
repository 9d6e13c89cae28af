"""The tags of a machine image, which say what it was made of."""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.fleet.settings import FleetSettings

FLEET, MODEL, COMMIT, MODEL_HASH, MANIFEST, BOOT_SECONDS = (
    f"peakplan:{name}" for name in ("fleet", "model", "commit", "model-hash", "manifest", "boot-seconds")
)
_HASH = 12  # of the 64 hexadecimal digits of a content's hash; a tag has 256 characters


def release_tags(settings: FleetSettings, contents: Mapping[str, str], commit: str) -> dict[str, str]:
    """Return the tags of an image made at `commit` of `contents` (the content hashes of service, model and host)."""
    manifest = {name: digest[:_HASH] for name, digest in sorted(contents.items())} | {"sdk": settings.model.sdk}
    return {
        FLEET: settings.name,
        MODEL: settings.model.id,
        COMMIT: commit,
        MODEL_HASH: contents["model"][:_HASH],
        MANIFEST: json.dumps(manifest, separators=(",", ":")),
        BOOT_SECONDS: str(settings.boot_seconds),  # within which the bake saw a fresh instance ready, or it failed
    }
