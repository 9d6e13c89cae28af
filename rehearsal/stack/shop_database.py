"""PostgreSQL with the sample shop, where this machine has it: every host's `POST /shop/search` asks it.

A stack without it is whole otherwise: each host then searches a sample shop of its own, in SQLite.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rehearsal.stack.folder import ROOT, Folder, StackError, postgres_programs

ADDRESS, PORT, USER = "0.20", 5432, "shop"
_SYSTEM_USER = "postgres"  # whom Debian's package makes: the server does not run as root
_START_SECONDS = 60.0
_POLL_SECONDS = 0.1


def why_none() -> str:
    """Return what this machine lacks for it, and what installs that; "" where it lacks nothing."""
    if postgres_programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: pip install -e '.[postgres]'"
    return ""


class ShopDatabase:
    """A server for one stack. Its data lie in a temporary folder: the server's own user may not see the stack's."""

    def __init__(self, folder: Folder) -> None:
        """Make nothing yet, but decide the address and the password. Raises StackError where it cannot run here."""
        if why := why_none():
            raise StackError(why)
        programs = postgres_programs()
        assert programs is not None
        self._programs, self._folder = programs, folder
        self._password = secrets.token_urlsafe(16)
        self.user = _SYSTEM_USER if os.getuid() == 0 else None
        self._place = Path(tempfile.mkdtemp(prefix="peakplan-shop-"))

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._folder.address(ADDRESS)

    @property
    def url(self) -> str:
        """How hosts connect."""
        return f"postgresql://{USER}:{self._password}@{self.address}:{PORT}/postgres"

    def make(self) -> list[str]:
        """Write an empty database; return the command that serves it. Raises StackError."""
        if self.user:
            shutil.chown(self._place, self.user)
        secret, data = self._place / "password", self._place / "data"
        secret.touch(mode=0o600)
        if self.user:
            shutil.chown(secret, self.user)
        secret.write_text(self._password, encoding="ascii")
        words = ["--pgdata", str(data), "--username", USER, "--pwfile", str(secret), "--auth", "scram-sha-256"]
        self._run("initdb", *words, "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
        with (data / "pg_hba.conf").open("a", encoding="ascii") as access:
            access.write("host all all 127.0.0.0/8 scram-sha-256\n")
        options = {"listen_addresses": self.address, "port": PORT, "unix_socket_directories": "", "fsync": "off"}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(data), *settings]

    def fill(self) -> None:
        """Wait until the server answers, then write the sample catalogue into it. Raises StackError."""
        ready = [str(self._programs / "pg_isready"), "--host", self.address, "--port", str(PORT), "--quiet"]
        end = time.monotonic() + _START_SECONDS
        while subprocess.run(ready, check=False).returncode:
            if time.monotonic() > end:
                raise StackError(f"PostgreSQL does not answer within {_START_SECONDS:g} s: its log is shop.log")
            time.sleep(_POLL_SECONDS)
        done = subprocess.run(
            [sys.executable, "-m", "peakplan_client.postgres_products"],
            cwd=ROOT,
            env={**os.environ, "PEAKPLAN_SAMPLE_SHOP_URL": self.url},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StackError(done.stderr.strip())

    def remove(self) -> None:
        """Forget the data; the server has ended."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        log = self._folder.path / "logs" / "shop-initdb.log"
        with log.open("wb") as output:
            done = subprocess.run(
                [self._programs / program, *words],
                user=self.user,
                group=self.user,
                extra_groups=[] if self.user else None,
                cwd=self._place,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        if done.returncode:
            raise StackError(f"{program} failed: {log.read_text(encoding='utf-8', errors='replace').strip()[-400:]}")
