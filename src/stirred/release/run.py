"""From a plan to a bundle: validate, plan, run, write, verify, and only then let it appear."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stirred import __version__
from stirred.data.codebook import Codebook
from stirred.data.columns import ParquetColumns, select
from stirred.data.frames import write_frame, write_parts
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError, bad_plan, listed
from stirred.data.sources import Source
from stirred.data.validate import validate
from stirred.inference.released import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.protocol import Progress, Release
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.family import swap_named
from stirred.mechanisms.swapping.moments import TooLargeError
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.revealing import revealing_columns
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.mechanisms.swapping.two_stage import TwoStageSwap
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import bundle_at, check_place, checksum, mark_seeded, write_manifest
from stirred.release.declared_values import with_declared_values
from stirred.release.expectation import Expectation, expectations, within_reach
from stirred.release.invariants import invariant_tables
from stirred.release.ledger import Ledger, Request, Total
from stirred.release.ledger.store import store_at
from stirred.release.noisy import declared_values, noisy_readme, strata_sizes, verify_noisy, write_drawn
from stirred.release.plan_file import Planned
from stirred.release.readme import exactness, public_readme
from stirred.release.reservation import reserved
from stirred.release.tables import Table, completed, labelled, tabulate, wanted_tables
from stirred.release.verify import Check, verify_swap, verify_tables
from stirred.report.swap import SwapReport, internal_report, public_report
from stirred.spec.document import to_json
from stirred.spec.problems import Problem, StirredError, placed
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification
from stirred.utility.error import compare_tables
from stirred.utility.measures import Accuracy, measure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A plan whose files were read and checked; nothing random has happened."""

    planned: Planned
    data: Microdata
    mechanism: Swap
    plan: SwapPlan
    tables: Sequence[Table]
    inputs: Mapping[str, str]
    codebook: Codebook | None = None
    ledger: Ledger | None = None
    warnings: Sequence[str] = ()


def prepare(planned: Planned) -> Prepared:
    """Read and check everything, and return what would happen."""
    planned = with_declared_values(planned)
    mechanism, data, inputs, codebook = _both(planned)
    ledger = None if planned.ledger is None else Ledger.open(planned.ledger)
    if isinstance(mechanism, NoisySwap) and codebook is not None:
        mechanism = replace(mechanism, values=declared_values(codebook, mechanism))
    called = planned.plan.data.name or ("" if ledger is None else ledger.dataset)
    data = replace(data, called=called)
    if codebook is not None:
        _check_codebook(codebook, data)
    plan = mechanism.plan(data)
    if codebook is not None:
        plan = _with_geography(plan, codebook)
    requests = [(table.name, table.columns) for table in planned.plan.tables]
    released = [name for name in data.households.columns if name in (*plan.hold, *mechanism.swap)]
    tables = wanted_tables(requests, households=released, persons=data.person_variables)
    # Where no record is published, no held column can undo the swap.
    revealing = () if isinstance(mechanism, NoisySwap) else revealing_columns(data, plan)
    warnings = (*plan.warnings, *revealing, *_other_inputs(ledger, inputs))
    _check_names([*released, *data.person_variables])
    return Prepared(
        planned=planned,
        data=data,
        mechanism=mechanism,
        plan=plan,
        tables=tables,
        inputs=inputs,
        codebook=codebook,
        ledger=ledger,
        warnings=warnings,
    )


def _other_inputs(ledger: Ledger | None, inputs: Mapping[str, str]) -> Iterator[str]:
    """Warn where the files are not those that the ledger has seen before."""
    if ledger is None:
        return
    for role, found in inputs.items():
        seen = {entry.number: entry.inputs[role] for entry in ledger.entries() if role in entry.inputs}
        if seen and found not in seen.values():
            yield (
                f"the file of {role} is none of those released before from '{ledger.dataset}' (entry {max(seen)} had "
                "another one): an edited file is the same dataset, another file needs a ledger of its own"
            )


def _check_codebook(codebook: Codebook, data: Microdata) -> None:
    """Check the files against the codebook."""
    persons = data.persons
    frame = persons.scan if isinstance(persons, ParquetColumns) else persons
    assert frame is None or isinstance(frame, (pl.DataFrame, pl.LazyFrame))
    problems = validate(
        data.households,
        frame,
        codebook,
        household_source=data.household_source,
        person_source=data.person_source,
    )
    if problems:
        raise DataError(problems)


def _with_geography(plan: SwapPlan, codebook: Codebook) -> SwapPlan:
    """Put the declared hierarchies into the specification, so that its invariants can be compared with others."""
    multiverse = replace(plan.specification.multiverse, hierarchies=codebook.hierarchies_for_spec())
    return replace(plan, specification=plan.specification.with_flavor(multiverse=multiverse))


# Names of our own columns in the tables we publish.
_OURS = ("table", "count", "true", "released", "error", "cell")


def _check_names(names: Sequence[str]) -> None:
    taken = [name for name in names if name in _OURS or name.startswith(("__", "stratum_"))]
    if taken:
        raise bad_plan(
            f"{listed(taken)} is a name that published tables use for something else",
            where="columns",
            remedy="rename the column in the file, or leave it out",
        )


def _both(planned: Planned) -> tuple[Swap, Microdata, dict[str, str], Codebook | None]:
    """Return mechanism, data and checksums of the files; all problems are reported together."""
    mechanism, data = None, None
    inputs: dict[str, str] = {}
    problems: list[Problem] = []
    try:
        mechanism = mechanism_of(planned)
    except StirredError as error:
        problems += error.problems
    codebook = None
    try:
        codebook = None if planned.codebook is None else Codebook.read(planned.codebook)
    except StirredError as error:
        problems += error.problems
    try:
        section = planned.plan.data
        for role, path in (("households", planned.households), ("persons", planned.persons)):
            place = None if path is None else Source.of(path).path
            if place is not None and place.exists():
                inputs[role] = checksum(place)
        # What the codebook declares as an identifier is one, whatever the plan forgot.
        hid = section.hid or (codebook.hid if codebook is not None and planned.persons is not None else None)
        declared = () if codebook is None else codebook.identifiers
        data = Microdata.read(planned.households, planned.persons, hid=hid, checked=False)
        present = {*data.households.columns, *(data.persons.columns if data.persons is not None else ())}
        named = [*section.id, *(name for name in declared if name in present and name != hid)]
        data = replace(data, id=tuple(dict.fromkeys(named)))
    except StirredError as error:
        problems += error.problems
    if data is not None:
        checks: list[Callable[[], None]] = [data.check]
        if mechanism is not None:
            checks.append(partial(mechanism.check, data))
        for check in checks:
            try:
                check()
            except StirredError as error:
                problems += error.problems
    if mechanism is None or data is None or problems:
        raise PlanError(dict.fromkeys(problems))
    return mechanism, data, inputs, codebook


def mechanism_of(planned: Planned) -> Swap:
    """Return the mechanism a plan asks for; a setting it does not have is refused."""
    section = planned.plan.mechanism
    with placed(f"{planned.source} [mechanism]"):
        return swap_named(
            section.name,
            {
                "rate": section.rate,
                "rates": section.rates,
                "epsilon": section.epsilon,
                "redraw_law": section.redraw_law,
                "fine_match": section.fine_match,
                "fine_rate": section.fine_rate,
                "respond": section.respond,
                "values": section.values,
                "change": section.change,
                "imputed": section.imputed,
                "distances": planned.declared("distances", number="distance"),
                "weights": planned.declared("weights", number="weight"),
                "noise_epsilon": section.noise_epsilon,
                "noise": section.noise,
                # Of the other members tables are counted from what they release.
                "tables": [table.columns for table in planned.plan.tables] if section.name == "noisy-swap" else None,
            },
            match=section.match,
            swap=section.swap,
            hold=section.hold,
            unit=section.unit,
            settings_from=section.settings_from,
        )


def run(prepared: Prepared, *, entropy: Entropy, progress: Progress | None = None) -> Path:
    """Carry a prepared plan out and return the bundle. It is complete, or it does not exist."""
    _check_promise(prepared)
    advance = progress or (lambda stage, done, total: None)
    out = prepared.planned.out
    check_place(out)
    with (
        reserved(prepared.ledger, release_request(prepared, seeded=entropy.seeded)) as reservation,
        bundle_at(out) as folder,
    ):
        log = Log(folder)
        log.add("started", records=prepared.data.households.height)
        reservation.draw()
        release = prepared.mechanism.release(prepared.data, entropy, plan=prepared.plan, progress=advance)
        release = _marked(release, seeded=entropy.seeded)
        log.add("swapped")
        advance("write", 0, 1)
        _write_public(folder, prepared, release)
        log.add("written")
        advance("verify", 0, 1)
        public, ending = folder / "public", prepared.planned.plan.release.format
        if isinstance(prepared.mechanism, NoisySwap):
            write_drawn(release, folder / "internal", note=_notes(release.specification))
            checks = verify_noisy(prepared.plan, release, prepared.tables, folder)
        else:
            checks = verify_swap(prepared.data, prepared.plan, release, public, format_=ending)
            checks += verify_tables(release, prepared.tables, public, format_=ending)
        log.add("verified", checks=[f"{check.what}: {check.result}" for check in checks])
        advance("report", 0, 1)
        _write_reports(folder, prepared, release, checks)
        if entropy.seeded:
            mark_seeded(folder)
        log.add("complete")
        write_manifest(folder, {**_manifest(prepared, release, checks), "ledger": reservation.facts})
        advance("done", 1, 1)
    reservation.commit(out)
    return out


def _parameters(planned: Planned) -> dict[str, Any]:
    """Return the plan as it is kept: the ledger by its name, which has no password in it."""
    parameters: dict[str, Any] = json.loads(planned.plan.model_dump_json())
    if planned.plan.release.ledger is not None:
        parameters["release"]["ledger"] = store_at(planned.plan.release.ledger).name
    return parameters


def release_request(prepared: Prepared, *, seeded: bool) -> Request:
    """Return what the ledger is asked for: the promise of this run, and enough to explain it years later."""
    planned = prepared.planned
    return Request(
        mechanism=planned.plan.mechanism.name,
        specification=replace(prepared.plan.specification, seeded=seeded),
        purpose=planned.plan.release.purpose,
        parameters=_parameters(planned),
        inputs=prepared.inputs,
        place=planned.out,
    )


def remaining(prepared: Prepared) -> Total | None:
    """Return the total the ledger would have after this run, refusing what its policy forbids; nothing is written."""
    return None if prepared.ledger is None else prepared.ledger.would(release_request(prepared, seeded=False))


def _check_promise(prepared: Prepared) -> None:
    """Refuse what would publish a promise that does not hold, before anything random happens."""
    if prepared.mechanism.settings_from == "this-data":
        raise bad_plan(
            "settings chosen by looking at the confidential file void the guarantee",
            where=f"{prepared.planned.source} [mechanism] settings_from",
            remedy="choose them by policy, from the invariants, or on an earlier or synthetic file",
        )
    if prepared.planned.plan.release.format == "csv":
        _check_writable(prepared.data)


def _check_writable(data: Microdata) -> None:
    """Refuse columns that CSV cannot hold before anything random happens."""
    for column in (*data.households.head(1).get_columns(), *([] if data.persons is None else _first_rows(data))):
        try:
            column.to_frame().write_csv()
        except pl.exceptions.PolarsError:
            raise bad_plan(
                f"values of type {column.dtype} cannot be written to CSV",
                where=f'"{column.name}"',
                remedy='use format = "parquet", or leave the column out',
            ) from None


def _first_rows(data: Microdata) -> list[pl.Series]:
    assert data.persons is not None
    return [data.persons[name].head(1) for name in data.person_variables]


class Log:
    """internal/log.jsonl: what happened and when; never a record of the file."""

    def __init__(self, folder: Path) -> None:
        (folder / "public" / "tables").mkdir(parents=True)
        (folder / "internal").mkdir(mode=0o700)
        self.path = folder / "internal" / "log.jsonl"

    def add(self, event: str, **facts: Any) -> None:
        """Append one line."""
        line = json.dumps({"at": _now(), "event": event, **facts})
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _marked(release: Release, *, seeded: bool) -> Release:
    return replace(release, specification=replace(release.specification, seeded=seeded))


def _title(prepared: Prepared) -> str:
    return prepared.planned.plan.release.title or f"Release of {prepared.data.name}"


def _notes(specification: Specification) -> dict[str, str]:
    """Return the Parquet metadata: the notation, and the mark of a test run."""
    notes = {"stirred.specification": specification.notation}
    return {**notes, "stirred.seeded": "test run with a seed, not for publication"} if specification.seeded else notes


def _write_public(folder: Path, prepared: Prepared, release: Release) -> None:
    public, ending = folder / "public", prepared.planned.plan.release.format
    notes = _notes(release.specification)
    for table in prepared.tables:
        write_frame(released_table(release, table), public / "tables" / f"{table.name}.csv")
    strata = prepared.mechanism.strata_table(prepared.plan.strata)
    if isinstance(prepared.mechanism, NoisySwap):
        # Sizes of strata are all that is fixed: no other margin, and no word on what there is to swap.
        write_frame(strata_sizes(prepared.plan), public / "invariants.parquet", note=notes)
        strata = strata.drop("stratum_live")
    else:
        for name in release.public:
            write_parts(release.public.parts(name), public / f"{name}.{ending}", note=notes)
        write_parts(invariant_tables(prepared.data, prepared.plan), public / "invariants.parquet", note=notes)
    write_frame(strata, public / "strata.parquet", note=notes)
    (public / "specification.json").write_text(to_json(release.specification), encoding="utf-8")
    page = to_markdown(release.specification, title=_title(prepared), method=prepared.mechanism.in_words)
    (public / "specification.md").write_text(page, encoding="utf-8")
    (public / "README.md").write_text(_readme(prepared, public), encoding="utf-8")


def _readme(prepared: Prepared, public: Path) -> str:
    purpose = prepared.planned.plan.release.purpose
    if isinstance(prepared.mechanism, NoisySwap):
        return noisy_readme(_title(prepared), prepared.mechanism, prepared.plan, prepared.tables, purpose=purpose)
    return public_readme(
        _title(prepared),
        prepared.mechanism,
        prepared.plan,
        prepared.tables,
        persons=prepared.data.person_variables,
        format_=prepared.planned.plan.release.format,
        purpose=purpose,
        in_parts=[path.name for path in sorted(public.iterdir()) if path.is_dir() and path.suffix],
    )


def released_table(release: Release, table: Table) -> pl.DataFrame:
    """Count a table from the released data, part by part; or take it where it was released itself."""
    if "drawn" in release.internal:
        return release.public.frame(table.title)
    variables = list(table.variables)
    if not table.of_persons:
        counts = [part.group_by(variables).len("count") for part in release.public.parts("data")]
        return completed(pl.concat(counts), variables)
    counts = []
    # Parts of persons and of households cover the same households.
    for people, homes in zip(release.public.parts("persons"), release.public.parts("data"), strict=True):
        key = homes.columns[0]
        shared = [name for name in variables if name not in people.columns]
        joined = people.select(key, *(n for n in variables if n in people.columns))
        if shared:
            joined = joined.join(homes.select(key, *shared), on=key, how="left")
        counts.append(joined.group_by(variables).len("count"))
    return completed(pl.concat(counts), variables)


def _accuracy(prepared: Prepared, release: Release) -> dict[str, pl.DataFrame]:
    accuracy = {}
    for table in prepared.tables:
        truth = tabulate(_truth(prepared, table), table.variables)
        accuracy[table.title] = compare_tables(truth, released_table(release, table), table.variables)
    return accuracy


def _measures(prepared: Prepared, compared: pl.DataFrame) -> Accuracy:
    """Return the accuracy of one compared table; association is between the swapped area and the rest."""
    variables = [name for name in compared.columns if name not in ("true", "released", "error")]
    truth, released = (compared.select(*variables, pl.col(name).alias("count")) for name in ("true", "released"))
    level = next((name for name in variables if name in prepared.mechanism.swap), None)
    return measure(truth, released, variables=variables, level=level)


def _expected(prepared: Prepared) -> list[Expectation]:
    """Return what the closed form expected of each table, for the internal report."""
    if not within_reach(prepared.mechanism, prepared.data):
        return []
    found: list[Expectation] = []
    for table in prepared.tables:
        with suppress(TooLargeError):
            found += expectations(prepared.mechanism, [table], prepared.data, source="this-data")
    return found


def _corrected(prepared: Prepared, release: Release) -> dict[str, Accuracy]:
    """Return how far each table is from the truth after its bias was taken out, as any reader can do."""
    if not prepared.tables or not within_reach(prepared.mechanism, prepared.data):
        return {}
    match, persons = tuple(prepared.mechanism.match), prepared.data.persons is not None
    strata = prepared.mechanism.strata_table(prepared.plan.strata)
    stages = prepared.mechanism if isinstance(prepared.mechanism, TwoStageSwap) else None
    public = SwappedRelease(
        records=release.public["data"].lazy(),
        match=match,
        swap=tuple(prepared.mechanism.swap),
        strata=strata.select(*(pl.col(name).cast(pl.String) for name in match), "stratum_rate"),
        persons=release.public["persons"].lazy() if persons else None,
        key=prepared.data.hid if persons else None,
        member=prepared.mechanism.stratum_law,
        redraw_law=prepared.mechanism.known_law if isinstance(prepared.mechanism, ConditionedSwap) else None,
        fine_match=() if stages is None else tuple(stages.fine_match),
        fine_rate=None if stages is None else str(stages.fine_rate),
    )
    found = {}
    for table in prepared.tables:
        truth = tabulate(_truth(prepared, table), table.variables).with_columns(pl.col(table.variables).cast(pl.String))
        with suppress(TooLargeError):
            estimate = unswap(table.variables, public).table.select(*table.variables, count="estimate")
            found[table.title] = measure(truth, estimate, variables=table.variables)
    return found


def _truth(prepared: Prepared, table: Table) -> pl.DataFrame:
    data = prepared.data
    if not table.of_persons or data.persons is None or data.hid is None:
        return data.households
    wanted = [name for name in table.variables if name not in data.person_variables]
    own = [name for name in table.variables if name in data.person_variables]
    persons = select(data.persons, [data.hid, *own])
    return persons.join(data.households.select(data.hid, *wanted), on=data.hid, how="left")


def _write_reports(folder: Path, prepared: Prepared, release: Release, checks: Sequence[Check]) -> None:
    accuracy = _accuracy(prepared, release)
    measures = {title: _measures(prepared, frame) for title, frame in accuracy.items()}
    expected = _expected(prepared)
    persons = prepared.data.person_variables
    shown = {
        f"{table.title} ({exactness(table, prepared.mechanism, prepared.plan, persons=persons)})": pl.read_csv(
            folder / "public" / "tables" / f"{table.name}.csv", infer_schema=False
        ).with_columns(pl.col("count").cast(pl.Int64))
        for table in prepared.tables
    }
    if prepared.codebook is not None:
        shown = {title: labelled(frame, prepared.codebook) for title, frame in shown.items()}
        accuracy = {title: labelled(frame, prepared.codebook) for title, frame in accuracy.items()}
    report = SwapReport(
        title=_title(prepared),
        mechanism=prepared.mechanism,
        plan=replace(prepared.plan, specification=release.specification),
        checks=[(check.what, check.cells, check.result) for check in checks],
        tables=shown,
        records=prepared.data.households.height,
        seeded=release.specification.seeded,
        made=f"Made with stirred {__version__}.",
        accuracy=accuracy,
        measures=measures,
        expected={each.table.title: each.error for each in expected},
        corrected=_corrected(prepared, release),
        warnings=prepared.warnings,
        safes=prepared.planned.plan.safes_sheet,
    )
    (folder / "public" / "report.html").write_text(public_report(report), encoding="utf-8")
    (folder / "internal" / "report.html").write_text(internal_report(report), encoding="utf-8")
    for each in expected:
        name = folder / "internal" / "expected" / f"{each.table.name}.parquet"
        name.parent.mkdir(exist_ok=True)
        write_frame(each.error.table, name, note=_notes(release.specification))
    if measures:
        text = json.dumps({title: asdict(found) for title, found in measures.items()}, indent=2, ensure_ascii=False)
        (folder / "internal" / "measures.json").write_text(text + "\n", encoding="utf-8")
    if accuracy:
        frames = [
            frame.select(
                pl.lit(title).alias("table"),
                pl.concat_str(pl.exclude("true", "released", "error").cast(pl.String), separator=" | ").alias("cell"),
                "true",
                "released",
                "error",
            )
            for title, frame in accuracy.items()
        ]
        write_frame(pl.concat(frames), folder / "internal" / "accuracy.parquet", note=_notes(release.specification))


def _manifest(prepared: Prepared, release: Release, checks: Sequence[Check]) -> dict[str, Any]:
    planned = prepared.planned
    parameters = _parameters(planned)
    # A file of distances or weights may be gone when somebody audits the bundle.
    parameters["mechanism"].update(prepared.mechanism.declared_pairs)
    return {
        "stirred": __version__,
        "python": platform.python_version(),
        "polars": pl.__version__,
        "created": _now(),
        "purpose": planned.plan.release.purpose,
        "plan": parameters,
        "inputs": dict(prepared.inputs),
        "records": prepared.data.households.height,
        "identifiers": list(prepared.data.identifiers),
        "released": _released(prepared),
        "seeded": release.specification.seeded,
        "checks": [asdict(check) for check in checks],
    }


def _released(prepared: Prepared) -> dict[str, Any]:
    """Return the columns that may be in public files, and the one that is issued anew to link them."""
    data, mechanism = prepared.data, prepared.mechanism
    homes = {*prepared.plan.hold, *mechanism.swap}
    if isinstance(mechanism, NoisySwap):
        homes = {*mechanism.match, *(name for variables in mechanism.tables for name in variables)}
    return {
        "households": [name for name in data.households.columns if name in homes],
        "persons": [name for name in data.person_variables if mechanism.hold is None or name in mechanism.hold],
        "link": data.hid if data.persons is not None else None,
    }
