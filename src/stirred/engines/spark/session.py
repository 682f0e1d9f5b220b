"""A Spark application of our own: started with safe settings, its workers compared with this machine, and stopped."""

from __future__ import annotations

import gc
import logging
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from stirred import __version__
from stirred.engines.protocol import EngineError, bad_engine
from stirred.engines.spark.checks import FIXED, is_loopback, site_defaults
from stirred.engines.spark.failures import told_plainly
from stirred.spec.problems import Problem

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

P = ParamSpec("P")
R = TypeVar("R")

# Whoever says otherwise under [engine.conf] is believed.
_DEFAULTS: Final = {
    "spark.io.encryption.enabled": "true",  # spilled rows and shuffles lie on the disks of workers
    "spark.ui.showConsoleProgress": "false",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",  # a task has one core, and its neighbours have the others
}
# The driver's Java process lives for minutes and computes nothing: it starts in half the time.
_QUICK: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# What reads, draws and computes must be the same everywhere: a resumed run and a retried task repeat it.
_LIBRARIES: Final = ("numpy", "numba", "polars")
_WORKERS_SECONDS: Final = 180
_STOP_SECONDS: Final = 15
_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A running application, and the hosts that work for it."""

    context: SparkContext
    version: str
    hosts: tuple[str, ...]
    together: int  # tasks that run at the same time in one executor
    start: float = 0.0  # seconds that it took to start
    before: float = 0.0  # seconds of tasks until then
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds of the start, and those of all tasks after it together."""
        return {"start": round(self.start, 1), "tasks": round(max(0.0, _task_seconds(self.context) - self.before), 1)}

    @property
    def slots(self) -> int:
        """Return how many tasks run at the same time."""
        return self.context.defaultParallelism

    def close(self) -> None:
        """Stop the application and its Java process, for certain."""
        self.closing.set()
        _stop_gateway()


def started(master: str, conf: Mapping[str, str], scratch: Path) -> Session:
    """Start an application on a master that answers, and compare its workers with this machine."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        raise bad_engine("a Spark session is open in this process", remedy="stop it, and run again")
    quick = {name: value for name, value in _QUICK.items() if name not in site_defaults()}
    own = {**_DEFAULTS, **quick, **(_LOOPBACK if is_loopback(master) else {}), **conf, **FIXED}
    own["spark.local.dir"] = str(scratch / "driver")
    begin = time.monotonic()
    given = SparkConf(loadDefaults=False).setMaster(master).setAppName("stirred").setAll([*own.items()])
    try:
        with (
            told_plainly("starting Spark"),
            warnings.catch_warnings(),  # about a pandas that is there for others
        ):
            warnings.simplefilter("ignore", FutureWarning)
            gateway = java(given, scratch / "driver.log")
            with _signals_kept():
                context = SparkContext(conf=given, gateway=gateway)
            # Executors run the Python that this machine runs, unless somebody named another.
            context.pythonExec = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
            hosts = _compared(context, scratch)
            session = Session(
                context=context, version=context.version, hosts=hosts, together=_together(context),
                start=time.monotonic() - begin, before=_task_seconds(context),
            )  # fmt: skip
            threading.Thread(target=_watch, args=(context, session.closing), daemon=True).start()
            return session
    except BaseException:
        _stop_gateway()
        raise


def java(conf: SparkConf, log: Path) -> Any:
    """Start a Java process that has Spark's classes, and return the way to talk to it."""
    from pyspark.java_gateway import launch_gateway

    logging.getLogger().addFilter(_not_of_py4j)
    # What is said to Java, keys included, would stand in the log of a program that logs everything.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with told_plainly("starting Spark"), log.open("wb") as stream, ThreadPoolExecutor(1) as aside:
        # It would write to the terminal.
        starting = aside.submit(launch_gateway, conf, popen_kwargs={"stdout": stream, "stderr": stream})
        try:
            return starting.result()
        except BaseException:
            with suppress(Exception):  # whoever is interrupted meanwhile waits for it: it would live on alone
                end_java(starting.result())
            raise


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep its traces off the terminal: it logs every interruption and every lost driver, which we tell ourselves."""
    return "py4j" not in record.pathname


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put our handling of an interruption back: a context brings one of its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _stop_gateway() -> None:
    """End the driver's Java process. PySpark keeps one for the life of a process, and offers no other way."""
    from pyspark import SparkContext

    if (context := SparkContext._active_spark_context) is not None:
        with suppress(Exception):  # a cluster that is gone already cannot be told
            context.stop()
    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        end_java(gateway)


def end_java(gateway: Any) -> None:
    """End a Java process, for certain."""
    logging.getLogger().removeFilter(_not_of_py4j)
    with suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin is not None:
        process.stdin.close()  # it leaves when nobody is at the other end
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _compared(context: SparkContext, scratch: Path) -> tuple[str, ...]:
    """Return the hosts of the executors; refuse where Python, a package or the scratch folder differs."""
    _wait_for_executors(context)
    place = scratch / "seen"
    place.mkdir(mode=0o700)
    tasks = 4 * context.defaultParallelism
    seen: list[dict[str, str]] = context.parallelize(range(tasks), tasks).map(_asking(str(place))).collect()
    problems = [problem for one in {each["host"]: each for each in seen}.values() for problem in _differences(one)]
    unseen = {one["host"] for one in seen if not (one["mark"] and Path(one["mark"]).exists())}
    problems += [
        Problem(
            what=f"{host} does not see the scratch folder, or may not write there",
            where="[engine] scratch",
            remedy="name a folder with scratch = under [engine] that this machine and all workers see at one path; "
            "run the workers as the same user",
        )
        for host in sorted(unseen)
    ]
    if problems:
        raise EngineError(problems)
    return tuple(sorted({one["host"] for one in seen}))


def _wait_for_executors(context: SparkContext) -> None:
    deadline = time.monotonic() + _WORKERS_SECONDS
    while not _executors(context):
        if time.monotonic() > deadline:
            raise bad_engine(
                f"no worker took the application within {_WORKERS_SECONDS} seconds",
                where="[engine] master",
                remedy="look on the page of the master whether workers are alive and have free cores and memory; ask "
                "for less with spark.executor.memory or spark.cores.max under [engine.conf]",
            )
        time.sleep(0.1)


def _executors(context: SparkContext) -> int:
    counted: int = context._jsc.sc().getExecutorMemoryStatus().size()
    return counted - (not str(context.master).startswith("local"))  # the driver counts as one


def _task_seconds(context: SparkContext) -> float:
    """Return the seconds of all tasks together, as Spark's own listener counts them; 0 where it does not say."""
    with suppress(Exception):  # no release fails for this, not even if the cluster is gone by now
        listed: Any = context._jsc.sc().statusStore().executorList(False)
        executors = [listed.apply(number) for number in range(listed.size())]
        return float(sum(each.totalDuration() for each in executors if each.totalTasks())) / 1000
    return 0.0


def _watch(context: SparkContext, closing: threading.Event) -> None:
    """Give up jobs that no executor is left for: as long as a master is there, Spark would wait for ever."""
    since = time.monotonic()
    with suppress(Exception):  # the context is gone, and with it all jobs
        while not closing.wait(_LOOK_SECONDS):
            if _executors(context):
                since = time.monotonic()
            elif time.monotonic() - since > _WORKERS_SECONDS:
                context.cancelAllJobs()


def _together(context: SparkContext) -> int:
    """Return how many tasks an executor runs at the same time, by default one for each core of a worker."""
    spark: Any = context._jsc.sc()
    tasks: int = spark.schedulerBackend().maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())
    return -(-tasks // max(1, _executors(context)))


def _asking(place: str) -> Callable[[int], dict[str, str]]:
    """Return a task that says what a worker has. It is sent whole, so that one without our package can answer."""
    names = ("stirred", *_LIBRARIES)

    def ask(number: int) -> dict[str, str]:
        import os
        import platform
        import socket
        import time
        from contextlib import suppress
        from importlib import import_module
        from uuid import uuid4

        time.sleep(0.05)  # long enough that no executor takes them all
        found = {"host": socket.gethostname(), "python": platform.python_version(), "mark": ""}
        for name in names:
            found[name] = ""
            with suppress(ImportError):
                found[name] = import_module(name).__version__
        with suppress(OSError):
            mark = os.path.join(place, str(uuid4()))
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            found["mark"] = mark
        return found

    return ask


class OtherVersionsError(RuntimeError):
    """A worker that would read, draw or compute otherwise than this machine."""


def versions() -> dict[str, str]:
    """Return the versions that must be the same everywhere."""
    return {"stirred": __version__, **{name: version(name) for name in _LIBRARIES}}


def with_these_versions(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return a kernel that refuses to run where versions differ: executors may join after all others were asked."""
    here = tuple(versions().items())

    @wraps(kernel)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        _check_versions(here, len(sys.modules))
        return kernel(*given, **named)

    return checked


@cache
def _check_versions(wanted: tuple[tuple[str, str], ...], modules: int) -> None:
    if dict(wanted) != versions():
        raise OtherVersionsError
    gc.freeze()  # PySpark looks for garbage after each task: in all that was loaded, that took longer than many a task


def _differences(found: Mapping[str, str]) -> Iterator[Problem]:
    here = versions()
    host = f"worker {found['host']}"
    if found["python"].split(".")[:2] != platform.python_version().split(".")[:2]:
        yield Problem(
            what=f"it runs Python {found['python']}, and this machine {platform.python_version()}",
            where=host,
            remedy="install the same minor version there, or name it with PYSPARK_PYTHON",
        )
    for name, own in here.items():
        if found[name] != own:
            there = f"it has {name} {found[name]}" if found[name] else f"it lacks the package {name}"
            yield Problem(
                what=f"{there}, and this machine has {own}",
                where=host,
                remedy=f"install {name}=={own} there, for the Python that executors run",
            )
