"""The types of `@peakplan/client`, written from the OpenAPI document that the service gives.

`peakplan tools client-types` writes clients/typescript/src/schema.ts. A test fails where it is stale.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from service.api.app import create_app, replica_pool, wire
from service.settings import Settings

FOLDER = Path(__file__).parents[2] / "clients" / "typescript"
TYPES = FOLDER / "src" / "schema.ts"
# The Node that Python's package brings comes first: the machine needs none.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
NODE = shutil.which("node", path=PATH) or "node"
GENERATOR = FOLDER / "node_modules" / "openapi-typescript" / "bin" / "cli.js"


async def _document() -> bytes:
    settings = Settings(replicas=1)
    transport = httpx.ASGITransport(create_app(wire(replica_pool(settings), settings), settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return (await client.get("/openapi.json")).content


def generate() -> str:
    """Return the types of the document as the code is now. Raises SystemExit where the generator is missing."""
    if not GENERATOR.exists():
        raise SystemExit(f"{GENERATOR} is not installed: peakplan tools client-types")
    with tempfile.TemporaryDirectory() as folder:
        document, types = Path(folder, "openapi.json"), Path(folder, "schema.ts")
        document.write_bytes(asyncio.run(_document()))
        # A field with a default may be left out of a request; of an answer the document calls it required anyway.
        command = [NODE, str(GENERATOR), str(document), "--output", str(types), "--default-non-nullable", "false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"openapi-typescript failed: {done.stderr.strip()}")
        return types.read_text(encoding="utf-8")


if __name__ == "__main__":
    TYPES.write_text(generate(), encoding="utf-8")
