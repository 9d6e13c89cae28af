"""A moto server with our models, a process of its own on a free port of the loopback; `moto_server` is its fixture."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from tests.processes import PATIENCE

REPOSITORY = Path(__file__).parents[2]
REGION, ACCOUNT = "us-east-1", "123456789012"


@dataclass(frozen=True)
class MotoServer:
    """Where the server listens, and what a child process or a client needs to reach it."""

    url: str  # says localhost: the CDK CLI addresses buckets by host name, which an IP address does not carry

    def environment(self) -> dict[str, str]:
        """Environment variables for the CDK CLI or any AWS SDK."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return kept | {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "testing",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def empty(self) -> None:
        """Take everything out of the account."""
        asked = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        urllib.request.urlopen(asked, timeout=PATIENCE).close()

    @cache  # noqa: B019  # a client takes longer to make than most of its calls take; a server is one of a few
    def client(self, service: str, region: str = REGION) -> Any:
        """A boto3 client of the server."""
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.url,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )


def stubbed(service: str) -> tuple[Any, Stubber]:
    """A client whose answers a test gives and botocore checks for their shape: for what moto does not know."""
    client = boto3.client(service, region_name=REGION, aws_access_key_id="t", aws_secret_access_key="t")
    stub = Stubber(client)
    stub.activate()
    return client, stub


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def running_moto(log: Path, **variables: str) -> Iterator[MotoServer]:
    """A server that answers, ended at the end whatever happens; its log goes to the file.

    `variables` are added to its environment.
    """
    port = _free_port()
    url = f"http://localhost:{port}"
    with log.open("w") as output:
        command = [sys.executable, "-m", "tests.infra.moto_models", str(port)]
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=os.environ | variables, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(url):
            assert process.poll() is None, f"the moto server ended:\n{log.read_text()}"
            assert time.monotonic() < end, f"the moto server does not answer:\n{log.read_text()}"
            time.sleep(0.1)
        yield MotoServer(url)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One server for a module: its account is that module's alone, whatever ran before."""
    with running_moto(tmp_path_factory.mktemp("moto") / "server.log") as server:
        yield server
