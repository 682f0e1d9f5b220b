"""What is said when a task fails: where and which kind of error, and never a value of a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from stirred.engines.protocol import EngineError, bad_engine

P = ParamSpec("P")
R = TypeVar("R")

# What a failed task says about itself, in the one line that leaves the executor.
_MARK: Final = re.compile(r"stirred-task-failed: (\w+) in (\S+)")
_FULL: Final = "No space left on device"
# What Spark says, what that means, and what to do.
_KNOWN: Final = {
    "MemoryError": ("executors have too little memory", "raise spark.executor.memory under [engine.conf]"),
    "ExecutorLostFailure": (
        "executors were lost again and again",
        "look whether the workers ran out of memory (spark.executor.memory under [engine.conf])",
    ),
    "cancellation of all jobs": (
        "all workers were lost, and none took their place",
        "look on the page of the master whether workers are alive, and start them",
    ),
    "on a stopped SparkContext": (
        "no master took the application, or it is gone",
        "check that the address is that of a Spark 4 master, and that it runs; if the cluster asks for a secret "
        "(spark.authenticate), name the folder of its spark-defaults.conf with SPARK_CONF_DIR",
    ),
    "JAVA_GATEWAY_EXITED": (
        "the Java process of this machine ended",
        "check the jars and Java options under [engine.conf] and in spark-defaults.conf",
    ),
    "PYTHON_VERSION_MISMATCH": (
        "workers have another version of Python than this machine",
        "install the same minor version on every worker, or name one with PYSPARK_PYTHON",
    ),
    "Cannot run program": (
        "workers have no such Python as was named",
        "install Python and stirred at the same path on every worker, or name it with PYSPARK_PYTHON",
    ),
    "OtherVersionsError": (
        "a worker that joined later has other versions of stirred or of the libraries it draws with",
        "install the same versions on every worker, and start again",
    ),
    "ModuleNotFoundError": ("workers lack a package", "install the same version of stirred on every worker"),
    _FULL: (
        "a disk of a worker is full",
        "make room in the local folders of the workers (SPARK_LOCAL_DIRS), or in the scratch folder",
    ),
}


class TaskFailedError(RuntimeError):
    """A task that failed, told by kind and place alone: executors' logs are read by others than custodians."""


def without_values(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return a kernel whose errors name their kind and place, and drop the message, which may quote a record.

    >>> without_values(lambda record: int(record))("age 97")
    Traceback (most recent call last):
    stirred.engines.spark.failures.TaskFailedError: stirred-task-failed: ValueError in ...
    """

    @wraps(kernel)
    def guarded(*given: P.args, **named: P.kwargs) -> R:
        try:
            return kernel(*given, **named)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of polars is no Exception, and quotes values like any other
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            place = trace and f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            full = f" ({_FULL})" if _FULL in str(error) else ""  # the one message that is known to quote nothing
            raise TaskFailedError(f"stirred-task-failed: {type(error).__name__} in {place}{full}") from None

    return guarded


@contextmanager
def told_plainly(doing: str) -> Iterator[None]:
    """Raise what Spark says inside the block as a problem with a remedy, without the text of its exceptions."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise explained(str(error), doing=doing) from None


def explained(said: str, *, doing: str) -> EngineError:
    """Return the error for what Spark said, recognised by its own words; nothing of a record is repeated.

    >>> print(explained("... stirred-task-failed: KeyError in kernel.py:12 ...", doing="exchanging"))
    [engine]: exchanging failed on the cluster (KeyError in kernel.py:12). Fix: look at the logs ...
    """
    for words, (what, remedy) in _KNOWN.items():
        if words in said:
            return bad_engine(f"{doing} failed on the cluster: {what}", remedy=remedy)
    kind = re.search(r"\[?([A-Z][A-Z_]{8,}|[\w.]*(?:Exception|Error))\b", said)
    why = f"{found[1]} in {found[2]}" if (found := _MARK.search(said)) else kind[1] if kind else "it does not say why"
    remedy = "look at the logs of the executors, on the workers; the run can be repeated or resumed"
    return bad_engine(f"{doing} failed on the cluster ({why})", remedy=remedy)
