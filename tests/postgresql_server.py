"""A PostgreSQL of one's own: Debian's server on a Unix socket in a temporary folder, gone with the test."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.stack.folder import postgres_programs
from tests.processes import PATIENCE

_USER = "postgres"  # whom Debian's package makes: the server does not run as root


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Start a server and yield the connection string of its database. Skips where none is installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install -e .[shop-engines]")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("there is no PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="peakplan-pg-"))
    user = _USER if os.getuid() == 0 else None
    if user:
        shutil.chown(folder, user, user)
    data, options = folder / "data", f"-k {folder} -c listen_addresses='' -c fsync=off"

    def run(program: str, *words: str) -> None:
        with (folder / f"{program}.log").open("ab") as log:  # no pipe, which the server would hold open
            subprocess.run(
                [programs / program, *words], user=user, group=user, extra_groups=[] if user else None, cwd=folder,
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE,
            )  # fmt: skip

    try:
        run("initdb", "--pgdata", str(data), "--auth", "trust", "--username", "shop", "--encoding", "UTF8",
            "--no-sync", "--locale", "C.UTF-8", "--text-search-config", "english")  # fmt: skip
        run("pg_ctl", "--pgdata", str(data), "--options", options, "--wait", "start")
        try:
            yield f"host={folder} user=shop dbname=postgres"
        finally:
            run("pg_ctl", "--pgdata", str(data), "--mode", "immediate", "--wait", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
