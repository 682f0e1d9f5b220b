"""A real standalone Spark cluster on this machine, for trying things out: one master and some workers, each a process.

    with LoopbackCluster(workers=2) as cluster:
        print(cluster.master)  # spark://127.0.0.1:...

Nothing listens on another address. The processes die with this one, however it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
# Java compiles less and collects with one thread: right for processes that live for minutes.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class LoopbackCluster:
    """One master and some workers of one core each; ``environment`` is what to run applications in."""

    def __init__(self, *, workers: int = 2, memory: str = "1500m") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stirred-spark-"))  # mode 0700
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = self._environment()
        try:
            port, pages = _free_port(), _free_port()
            self.master, self.pages = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{pages}"
            here = ["--host", "127.0.0.1", "--webui-port"]
            self._start("master.Master", [*here, str(pages), "--port", str(port)])
            self._wait("the master accepts connections", lambda: _accepts(port))
            for number in range(workers):
                own = ["-c", "1", "-m", memory, "-d", str(self.folder / f"worker{number}"), self.master]
                self._start("worker.Worker", [*here, "0", *own])
            self._wait("all workers are there", lambda: len(self.alive()) == workers)
        except BaseException:
            self.stop()
            raise

    def _environment(self) -> dict[str, str]:
        """Return the environment of all processes, with a secret that stands in a file and on no command line."""
        conf = self.folder / "conf"
        conf.mkdir(mode=0o700)
        settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.network.crypto.enabled": "true",
            "spark.io.encryption.enabled": "true",
            "spark.master.rest.enabled": "false",
        }
        with os.fdopen(os.open(conf / "spark-defaults.conf", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())
        import pyspark

        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {
            **kept,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOG_DIR": str(self.folder / "logs"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "SPARK_LAUNCHER_OPTS": QUICK_START,
            "PYSPARK_PYTHON": sys.executable,
        }

    def _start(self, daemon: str, arguments: list[str]) -> None:
        program = Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class"
        command = [str(program), f"org.apache.spark.deploy.{daemon}", *arguments]
        with (self.folder / f"{daemon}{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self.folder,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        self.processes.append(process)

    def alive(self) -> list[dict[str, object]]:
        """Return what the master says about the workers that are alive."""
        try:
            with urlopen(f"{self.pages}/json/", timeout=5) as page:
                return [worker for worker in json.load(page)["workers"] if worker["state"] == "ALIVE"]
        except (OSError, ValueError, KeyError):  # a page of a master that is starting says so, and is no JSON
            return []

    def _wait(self, what: str, is_so: object) -> None:
        assert callable(is_so)
        deadline = time.monotonic() + 180
        while not is_so():
            ended = [process for process in self.processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"not true in time: {what}\n{logs}")
            time.sleep(0.1)

    def executors(self) -> list[int]:
        """Return the processes of executors that run now."""
        return [pid for pid in _in_sessions(self.processes) if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def stop(self) -> None:
        """Stop all processes, with force after 15 seconds, and remove every file."""
        groups = _groups(self.processes)
        _signal(groups, signal.SIGTERM)
        deadline = time.monotonic() + 15
        while _in_sessions(self.processes) and time.monotonic() < deadline:
            for process in self.processes:
                process.poll()
            time.sleep(0.05)
        _signal(groups | _groups(self.processes), signal.SIGKILL)
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> LoopbackCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _in_sessions(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Return all living processes in the sessions of these: daemons, and the executors that workers start."""
    sessions, found = {process.pid for process in processes}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in sessions and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def _groups(processes: list[subprocess.Popen[bytes]]) -> set[int]:
    found = set()
    for pid in _in_sessions(processes):
        try:
            found.add(os.getpgid(pid))
        except ProcessLookupError:
            continue
    return found


def _signal(groups: set[int], number: int) -> None:
    for group in groups:
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            continue
