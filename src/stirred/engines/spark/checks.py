"""What can be known about a cluster before anything is started: packages, Java, its address, its encryption."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from stirred.engines.protocol import EngineError
from stirred.spec.problems import Problem

_JAVA: Final = ("17", "21")  # Spark 4 runs on these; it is tested with the first
_SECONDS: Final = 5
_ENCRYPTED: Final = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
# Neither pages nor files may show queries, which name columns and values.
FIXED: Final = {
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
    "spark.submit.deployMode": "client",
}
# What a plan must not say: it is kept in the manifest, and stands on the command line of the driver.
_SECRET: Final = re.compile(r"secret|password|token|credential|\.key(\.|$)|\.sas\b", re.IGNORECASE)
_FORMS: Final = {"spark.executor.memory": (r"\d+([kmgt]b?)?", "8g"), "spark.executor.cores": (r"[1-9]\d*", "4")}
_ADDRESS: Final = re.compile(r"(?:spark://)?([^:/,\s]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")


def check_cluster(master: str, conf: Mapping[str, str]) -> None:
    """Raise everything that is wrong with the software here, the address and the settings; nothing is started."""
    if problems := [*_software(), *_unreachable(master), *_unsafe(master, conf)]:
        raise EngineError(problems)


def addresses(master: str) -> list[tuple[str, int]] | None:
    """Return host and port of each master, none for one inside this process; None if it is no address.

    >>> addresses("spark://head:7077,spare:7078"), addresses("local[2]"), addresses("yarn")
    ([('head', 7077), ('spare', 7078)], [], None)
    """
    if re.fullmatch(r"local(\[(\d+|\*)\])?", master):
        return []
    found = [_ADDRESS.fullmatch(name) for name in master.split(",")]
    if not master.startswith("spark://") or not all(found):
        return None
    return [(match[1].strip("[]"), int(match[2])) for match in found if match is not None]


def is_loopback(master: str) -> bool:
    """Say whether nothing leaves this machine.

    >>> is_loopback("local[2]"), is_loopback("spark://127.0.0.1:7077"), is_loopback("spark://head.agency:7077")
    (True, True, False)
    """
    return all(_is_loopback(host) for host, _ in addresses(master) or ())


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _software() -> Iterator[Problem]:
    if find_spec("pyspark") is None:
        what, remedy = "Spark needs pyspark, which is not installed", "pip install 'stirred[spark]'"
        yield Problem(what=what, where="[engine]", remedy=remedy)
    home, found = os.environ.get("JAVA_HOME"), None
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is not None and os.access(program, os.X_OK):
        asked = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
        found = re.search(r'version "(\d+)', asked.stderr + asked.stdout)
    if found is None or found[1] not in _JAVA:
        there = "there is none" if found is None else f"here is Java {found[1]}"
        yield Problem(
            what=f"Spark needs Java {_JAVA[0]}, and {there}{f' in JAVA_HOME ({home})' if home else ''}",
            where="[engine]",
            remedy=f"{'unset JAVA_HOME or correct it, or ' if home else ''}install openjdk-17-jre-headless (Debian, "
            f"Ubuntu) or java-17-openjdk-headless (Red Hat){'' if home else ', or set JAVA_HOME'}",
        )


def _unreachable(master: str) -> Iterator[Problem]:
    places, refused = addresses(master), []
    for host, port in places or ():
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
            return  # Spark finds the one of several that leads
        except (OSError, OverflowError, UnicodeError) as error:
            refused.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    if refused or places is None:
        what, remedy = (
            f"no Spark master answers ({'; '.join(refused)})",
            "check the address, that the master runs, and that this machine may connect to it",
        )
        if places is None:
            what = f"'{master}' is not the address of a Spark master"
            remedy = "write spark://HOST:PORT, as the page of the master shows it; only standalone clusters are known"
        yield Problem(what=what, where="[engine] master", remedy=remedy)


def _unsafe(master: str, conf: Mapping[str, str]) -> Iterator[Problem]:
    settings = {**site_defaults(), **conf}
    missing = [name for name in _ENCRYPTED if settings.get(name, "").lower() != "true"]
    if missing and not is_loopback(master):
        what = f"confidential records would travel or lie unprotected: {', '.join(missing)} not set to true"
        remedy = "ask the administrator to set them in spark-defaults.conf of the cluster and of this machine"
        yield Problem(what=what, where="[engine] conf", remedy=remedy)
    for name, (form, example) in _FORMS.items():
        if not re.fullmatch(form, settings.get(name, example).lower()):
            what, remedy = (
                f"{name} = {settings[name]} is not understood",
                f"write it as Spark does, such as '{example}'",
            )
            yield Problem(what=what, where="[engine] conf", remedy=remedy)
    for name, value in conf.items():
        what = ""
        if FIXED.get(name, value).lower() != value.lower():
            what, remedy = f"{name} = {value} is not allowed: records or their values could be seen", "leave it out"
        elif name in ("spark.master", "spark.remote"):
            what, remedy = f"{name} would lead elsewhere than where was looked", "name the cluster with master alone"
        elif _SECRET.search(name):
            what = f"{name} is a secret, and a plan is kept in the manifest"
            remedy = "put it into spark-defaults.conf, which only you can read"
        elif not name.startswith("spark."):
            what = f"{name} is not a setting of Spark"
            remedy = "write names as Spark does, such as 'spark.executor.memory'"
        if what:
            yield Problem(what=what, where="[engine] conf", remedy=remedy)


def site_defaults() -> dict[str, str]:
    """Return what this machine's spark-defaults.conf says; Spark reads it as well."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))
    try:
        text = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8") if folder else ""
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [re.split(r"\s*[=:]\s*|\s+", line, maxsplit=1) for line in lines if line and line[0] not in "#!"]
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
