"""A real PostgreSQL server of our own, on a socket in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import psycopg


def program(name: str) -> str:
    """A program of the server; it must be there, because storage nobody tried is not tested."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    assert found, f"no {name}: run `make postgres`, which installs it, or `make test`, which does so first"
    return found


class Server:
    """The server; it can be killed and started again, with its data."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.prefix: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.prefix = ["runuser", "-u", "postgres", "--"]
        data = ["-D", str(self.folder / "data")]
        self._run([program("initdb"), *data, "-U", "ledger", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale"])
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run([*self.prefix, *command], cwd="/tmp", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        settings = ["fsync=off", "listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=100"]
        options = [text for setting in settings for text in ("-c", setting)]
        command = [*self.prefix, program("postgres"), "-D", str(self.folder / "data"), *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd="/tmp", stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)

    def url(self, schema: str | None = None) -> str:
        options = f"&options=-csearch_path%3D{schema}" if schema else ""
        return f"postgresql://ledger@/postgres?host={quote(str(self.folder), safe='')}{options}"

    def new_url(self) -> str:
        """Return the URL of an empty schema."""
        schema = f"s{uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")  # type: ignore[arg-type, unused-ignore]
        return self.url(schema)

    def kill(self) -> None:
        """Kill the server and all it started, at once."""
        assert self.process is not None
        main = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # The shared memory of the dead goes when the last of them is gone.
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
