"""What is kept of a run until its bundle appears: enough to make the very same release again, should the run die.

Decisions are addressed by a key (``stirred.randomness.entropy``). The same plan on the same files with the same key is
the same release, so to finish it costs nothing. What must be equal is kept as checksums and compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from stirred import __version__
from stirred.data.bundle import checksum
from stirred.data.problems import bad_plan
from stirred.mechanisms.registry import package_of
from stirred.release.plan_file import Planned, planned
from stirred.release.prepared import Prepared

# Values that TOML has and JSON has not, with how they are written and read.
_KINDS: Final[Mapping[str, Any]] = {
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}
_SECRETS: Final = ("password", "sslpassword")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The plan of a run, its entry in the ledger, and the checksums of all that the release depends on."""

    version: str
    plan: Mapping[str, Any]
    folder: str
    source: str
    premises: Mapping[str, str]
    ledger: Mapping[str, Any]
    libraries: Mapping[str, str]

    @classmethod
    def of(cls, prepared: Prepared, *, ledger: Mapping[str, Any]) -> Kept:
        """Return what is kept of a run, before its draw."""
        asked = prepared.planned
        plan = asked.plan.model_dump()
        plan["release"]["ledger"] = _without_password(plan["release"]["ledger"])
        return cls(
            version=__version__,
            plan=plan,
            folder=str(asked.folder.absolute()),
            source=asked.source,
            premises=premises(prepared),
            ledger=ledger,
            libraries=libraries(),
        )

    @classmethod
    def read(cls, record: bytes, *, where: str) -> Kept:
        """Read what was kept; refuse what another version wrote, whose draws may differ."""
        try:
            content = json.loads(record, object_hook=_as_kind)
            kept = cls(**content)
        except (ValueError, TypeError) as error:
            raise bad_plan(
                f"what was kept of the release cannot be read ({error})",
                where=where,
                remedy="give the release up: `stirred ledger abort LEDGER ENTRY --reason TEXT`; `stirred ledger show "
                "LEDGER` lists open entries",
            ) from None
        if kept.version != __version__:
            raise bad_plan(
                f"it was begun with stirred {kept.version}, and this is {__version__}",
                where=where,
                remedy=f"finish it with stirred {kept.version}, which makes the same release",
            )
        now = libraries()
        if other := {name: was for name, was in kept.libraries.items() if was != now.get(name)}:
            begun = " and ".join(f"{name} {was}" for name, was in other.items())
            here = " and ".join(f"{name} {now.get(name, 'missing')}" for name in other)
            raise bad_plan(
                f"it was begun with {begun}, and here is {here}, which may read or draw otherwise",
                where=where,
                remedy=f"install {' '.join(f'{name}=={was}' for name, was in other.items())}, and resume again",
            )
        return kept

    @property
    def written(self) -> bytes:
        """Return the record as it is kept."""
        return json.dumps(asdict(self), default=_of_kind, ensure_ascii=False).encode()

    @property
    def planned(self) -> Planned:
        """Return the plan, ready to be carried out."""
        return planned(dict(self.plan), source=self.source, folder=Path(self.folder))


def premises(prepared: Prepared) -> dict[str, str]:
    """Return the checksums of what a release depends on besides its plan: files, codebook, numbers, codes, code."""
    found = dict(prepared.inputs)
    found |= prepared.mechanism.premises(prepared.plan)
    if prepared.planned.codebook is not None:
        found["codebook"] = checksum(prepared.planned.codebook)
    settings = json.dumps(prepared.settings.dumped(), sort_keys=True, default=str)
    found["the settings of the mechanism"] = hashlib.sha256(settings.encode()).hexdigest()
    found["the package of the mechanism"] = package_of(prepared.mechanism.name)
    # A version number does not change when somebody edits the code: another draw under the same entry of the ledger.
    for package in dict.fromkeys(("stirred", type(prepared.mechanism).__module__.partition(".")[0])):
        found[f"the code of {package}"] = _code_of(package)
    return found


@cache
def _code_of(package: str) -> str:
    """Return a checksum of all Python files of a package, as they were when a process first asked."""
    module = import_module(package)
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    files = {str(path.relative_to(top)): path for top in folders for path in top.rglob("*.py")}
    if not folders and module.__file__ is not None:
        files = {package: Path(module.__file__)}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{checksum(path)}\n".encode())
    return digest.hexdigest()


def libraries() -> dict[str, str]:
    """Return the versions of the libraries that read the files and make the draw."""
    return {name: version(name) for name in ("polars", "numpy", "numba")}


def _without_password(ledger: str | None) -> str | None:
    """Return the address of a ledger without its password; who resumes gives it again, as for any other command.

    >>> _without_password("postgresql://ana:secret@db.example.org/census?sslmode=require&password=secret")
    'postgresql://ana@db.example.org/census?sslmode=require'
    >>> _without_password("census.ledger")
    'census.ledger'
    """
    if ledger is None or "://" not in ledger:
        return ledger
    parts = urlsplit(ledger)
    user, at, host = parts.netloc.rpartition("@")
    settings = [each for each in parts.query.split("&") if each.partition("=")[0].lower() not in _SECRETS]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query="&".join(settings)))


def _of_kind(value: Any) -> dict[str, str]:
    kind = type(value).__name__.lower()
    if kind not in _KINDS:
        raise TypeError(f"{type(value).__name__} cannot be kept")
    return {f"${kind}": str(value) if isinstance(value, Decimal) else value.isoformat()}


def _as_kind(content: dict[str, Any]) -> Any:
    if len(content) == 1:
        ((name, value),) = content.items()
        if name.startswith("$") and name[1:] in _KINDS:
            return _KINDS[name[1:]](value)
    return content
