"""Files at addresses that Hadoop reads (HDFS, object stores), copied to this machine by a Java process of its own.

It has the settings that the cluster has: those of spark-defaults.conf and of Hadoop's files (HADOOP_CONF_DIR), and
those of the plan. No application is started.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stirred.engines.local import in_order
from stirred.engines.protocol import EngineError, bad_engine
from stirred.engines.spark.checks import FIXED
from stirred.engines.spark.session import end_java, java

_AT_ONCE: Final = 4  # files
_JARS: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "gs": "hadoop-gcp"}
_SETTINGS: Final = (
    "check the address, and that this machine has the settings of the cluster: HADOOP_CONF_DIR, or spark.hadoop.* in "
    "spark-defaults.conf or under [engine.conf]; secrets belong into the first two"
)
_REFUSED: Final = ("Permission denied", "AccessControlException", "AccessDenied", "Forbidden")


@dataclass(frozen=True, slots=True)
class _File:
    """A file elsewhere, where its copy goes, its length, and when it was changed, as they were listed."""

    address: str
    place: Path
    size: int
    changed: int


def copy_here(
    places: Mapping[str, Path],
    conf: Mapping[str, str],
    scratch: Path,
    *,
    is_read: Callable[[str, bool], bool],
    progress: Callable[[str, int, int], None],
) -> None:
    """Copy what lies at each address to its place, a file or the files of a folder that ``is_read(name, is_folder)``.

    Files that are others after the copy than before it are refused.
    """
    with _hadoop(conf, scratch) as (hadoop, kill):

        def listed() -> list[_File]:
            return [file for address, place in places.items() for file in hadoop.files(address, place, is_read)]

        files = listed()
        needed, free, done = sum(file.size for file in files), shutil.disk_usage(scratch).free, 0
        if needed > free:
            raise bad_engine(
                f"copying {', '.join(places)} needs {needed / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free",
                where=str(scratch.parent),
                remedy="make room, or name a folder on another disk with scratch under [engine]",
            )
        words = f"copying {needed / 1e6:,.1f} MB"
        progress(words, done, needed)
        for size in in_order(files, hadoop.copy, at_once=_AT_ONCE, give_up=kill):
            done += size
            progress(words, done, needed)
        if listed() != files:
            raise _changed(", ".join(places))


@contextmanager
def _hadoop(conf: Mapping[str, str], scratch: Path) -> Iterator[tuple[_Hadoop, Callable[[], object]]]:
    from pyspark import SparkConf

    given = SparkConf(loadDefaults=False).setMaster("local[1]").setAll([*{**conf, **FIXED}.items()])
    with warnings.catch_warnings():  # about a pandas that is there for others
        warnings.simplefilter("ignore", FutureWarning)
        gateway = java(given, scratch / "copy.log")
        try:
            yield _Hadoop(gateway.jvm), gateway.proc.kill
        finally:
            end_java(gateway)


class _Hadoop:
    """Hadoop's file systems, as the settings of the Java process have them."""

    def __init__(self, jvm: Any) -> None:
        with _explained("Hadoop"):
            self._path = jvm.org.apache.hadoop.fs.Path
            self._version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            own = jvm.org.apache.spark.SparkConf(True)
            self._settings = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(own)

    def files(self, address: str, place: Path, is_read: Callable[[str, bool], bool]) -> list[_File]:
        """Return the files at an address."""

        def below(status: Any, place: Path) -> Iterator[_File]:
            if not status.isDirectory():
                yield _File(status.getPath().toString(), place, status.getLen(), status.getModificationTime())
                return
            for each in system.listStatus(status.getPath()):
                if is_read(name := each.getPath().getName(), each.isDirectory()):
                    yield from below(each, place / name)

        with _explained(address, self._version):
            path = self._path(address)
            system = path.getFileSystem(self._settings)
            found = sorted(below(system.getFileStatus(path), place), key=lambda file: file.place)
        if not found:
            remedy = "name a file, or a folder that holds files ending in .parquet (also in folders such as state=01)"
            raise bad_engine("this is a folder without Parquet files", where=address, remedy=remedy)
        return found

    def copy(self, file: _File) -> int:
        """Copy one file, and return how long it is."""
        file.place.parent.mkdir(parents=True, exist_ok=True)
        with _explained(file.address, self._version):
            path = self._path(file.address)
            # To the raw file system, which writes no checksums beside the copy.
            path.getFileSystem(self._settings).copyToLocalFile(False, path, self._path(str(file.place)), True)
        if file.place.stat().st_size != file.size:
            raise _changed(file.address)
        return file.size


def _changed(address: str) -> EngineError:
    remedy = "run again when nobody writes there, or name a copy that stays as it is"
    return bad_engine("files changed while they were copied", where=address, remedy=remedy)


@contextmanager
def _explained(address: str, version: str = "") -> Iterator[None]:
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        thrown = getattr(error, "java_exception", None)
        said = "the Java process ended" if thrown is None else thrown.toString()
        raise explained(said, address, version) from None


def explained(said: str, address: str, version: str = "") -> EngineError:
    """Return the error for what Hadoop said about an address.

    >>> print(explained("ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "s3a://b/a"))
    s3a://b/a: Spark here has no file system for s3a:// (org.apache.hadoop.fs.s3a.S3AFileSystem). Fix: ...
    """
    scheme = address.partition(":")[0]
    what, remedy = f"Hadoop cannot read it ({said.partition(chr(10))[0][:200] or 'it does not say why'})", _SETTINGS
    if "ClassNotFoundException" in said:
        name = said.partition("ClassNotFoundException: ")[2].removeprefix("Class ").partition(" ")[0]
        jar = f"{_JARS.get(scheme, 'its jar')} {version}".strip()
        what = f"Spark here has no file system for {scheme}:// ({name})"
        remedy = f"add {jar} to the jars of Spark, or name it with spark.jars.packages in spark-defaults.conf"
    elif "UnsupportedFileSystemException" in said:
        what = f"Hadoop knows no file system {scheme}://"
        remedy = "check the address (that of Amazon is s3a://), or ask the administrator which jar and setting it needs"
    elif any(words in said for words in _REFUSED):
        what, remedy = "this user may not read it", "ask its owner, or check the credentials in spark-defaults.conf"
    elif "No space left on device" in said:
        what, remedy = "the disk is full", "make room, or name a folder on another disk with scratch under [engine]"
    elif "ChecksumException" in said:
        what = "the file is damaged: it does not have the checksum that is kept beside it"
        remedy = "write it again, or ask whoever keeps it"
    elif "FileNotFoundException" in said:
        what, remedy = "there is nothing at this address", "check the address"
    return bad_engine(what, where=address, remedy=remedy)
