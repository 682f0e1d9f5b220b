"""The bundle of a swap from its files alone: invariants, new identifiers, budget, strata and persons.

Persons belong to released households, live where these do, and their order carries no information.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, as_text, issued_anew, rows_of, same_cells
from stirred.data.codes import tells_records_apart
from stirred.data.household_rows import held_digest
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.files import MOST_PERSONS, WITH_PERSONS
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.budget import Budget, PermutationSwapping, SwappedStrata
from stirred.spec.convert import pull_back
from stirred.spec.domain import after_imputation
from stirred.spec.doubts import with_accepted_names
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification

_INVARIANTS: Final = "public/invariants.parquet"


def audit_records(bundle: BundleFiles, mechanism: Any | None, found: Findings) -> None:
    """Check all that a swap says of its released records; None is a swap whose settings are not known in full."""
    data, persons = bundle.data, bundle.persons
    if data is None:
        return
    margins = [m for m in bundle.specification.multiverse.invariants if isinstance(m, Margin)]
    digest = _audit_invariants(bundle, margins, data, found)
    fixed = {variable for margin in margins for variable in margin.variables}
    known = fixed | ({*mechanism.outside} if mechanism else set())
    ids = _identifiers(data, known, found)
    if bundle.strata is not None and (persons is not None or not bundle.has_persons):
        _audit_promise(bundle, data, ids, mechanism, found)
    if persons is None:
        return
    if digest is None and bundle.same_version and persons.height <= MOST_PERSONS:
        found.bad("the checksum of the hold table with persons is missing", where=_INVARIANTS)
    elif digest is None:
        found.unchecked.append(
            "whether the persons are those of the input: invariants.parquet has the variables of households only, and "
            "no checksum of what they hold with their persons"
        )
    # What was held are the columns of the last table of the invariants.
    held = [name for name in data.columns if margins and name in margins[-1].variables]
    _audit_persons(persons, data, ids, held, digest, found)


def _audit_invariants(
    bundle: BundleFiles, margins: Sequence[Margin], data: pl.DataFrame, found: Findings
) -> str | None:
    """Count every table of the invariants again; return the digest of what households hold with their persons."""
    published = bundle.invariants
    if published is None:
        return None
    if "table" not in published.columns or "count" not in published.columns:
        found.bad("it has no columns table and count", where=_INVARIANTS)
        return None
    published = published.with_columns(pl.col("table").cast(pl.String))
    known = {"table", "count", *(variable for margin in margins for variable in margin.variables)}
    if extra := [name for name in published.columns if name not in known]:
        found.bad(f"{', '.join(extra)} is in no table that the specification fixes", where=_INVARIANTS)
    tables = published["table"].unique(maintain_order=True).to_list()
    digests = [name.removeprefix(WITH_PERSONS) for name in tables if name and name.startswith(WITH_PERSONS)]
    names = [name for name in tables if not name or not name.startswith(WITH_PERSONS)]
    if len(margins) != len(names):
        found.bad(f"the specification fixes {len(margins)} tables and {len(names)} are published", where=_INVARIANTS)
    for name, margin in zip(names, margins, strict=False):
        variables = [variable for variable in margin.variables if variable in published.columns]
        left = [variable for variable in margin.variables if variable not in variables]
        missing = [variable for variable in variables if variable not in data.columns]
        if missing:
            found.bad(f"the released file has no column {', '.join(missing)}", where=f"invariant {margin}")
            continue
        if lacking := [variable for variable in left if variable in data.columns]:
            found.bad(f"it has no column {', '.join(lacking)}", where=_INVARIANTS)
        cells = published.filter(pl.col("table").eq_missing(pl.lit(name))).select(*variables, "count")
        if not same_cells(cells, data, variables):
            found.bad(f"the released file does not have the published table '{name}'", where=f"invariant {margin}")
            continue
        counted = replace(margin, variables=tuple(variables))
        found.checks.append(f"{counted}: {cells.height:,} cells, counted anew")
    return digests[0] if digests else None


def _identifiers(data: pl.DataFrame, known: set[str], found: Findings) -> list[str]:
    """Check that a column outside every invariant is a new number: 1, 2, ... in the released order."""
    extra = [name for name in data.columns if name not in known]
    for name in extra:
        column, numbers = data[name], f"1 to {data.height:,}"
        if issued_anew(column):
            found.checks.append(f'identifiers "{name}" are {numbers}')
            continue
        if issued_anew(column.cast(pl.Int64, strict=False).sort()):
            wrong = f"is {numbers} in another order than the rows: the rows were put in another order"
        elif tells_records_apart(column):
            wrong = f"is not {numbers}: an old identifier tells records apart"
        else:
            wrong = "is no new identifier: the specification says nothing about it"
        found.bad(f'"{name}" is in no invariant and {wrong}', where="public/data")
    return extra


_WHERE: Final = "public/persons"
# Households of more persons than this are not compared one by one: the first ones stand for all.
_PERSONS_COMPARED: Final = 5_000_000


def _audit_persons(
    persons: pl.DataFrame,
    households: pl.DataFrame,
    ids: Sequence[str],
    held: Sequence[str],
    digest: str | None,
    found: Findings,
) -> None:
    """Check released persons against released households.

    ``ids`` are the identifiers of the households, ``held`` their held variables and ``digest`` what these had with
    their persons in the input.
    """
    links = [name for name in ids if name in persons.columns]
    if len(links) != 1:
        found.bad("no column links the persons to the released households", where=_WHERE)
        return
    link = links[0]
    rows = rows_of(persons[link], households[link])
    if rows is None:
        found.bad(f'"{link}" of some persons is no released household, or that of two', where=_WHERE)
        return
    found.checks.append(f"{persons.height:,} persons belong to released households")
    homes = households.drop(ids)[rows]
    _same_places(persons, homes, found)
    own = [name for name in persons.columns if name not in (link, *homes.columns)]
    _no_order(rows, persons.select(own), found)
    if digest is not None:
        if held_digest(households.select(held), persons.select(own), rows) != digest:
            found.bad("the persons of the released households are not those of the input", where=_WHERE)
        else:
            found.checks.append("what households hold, with all characteristics of their persons: as in the input")


def _same_places(persons: pl.DataFrame, homes: pl.DataFrame, found: Findings) -> None:
    """Check that what is written on persons about their household is what the household says."""
    shared = [name for name in homes.columns if name in persons.columns]
    differing = [
        name
        for name in shared
        if not persons[name].cast(pl.String).equals(homes[name].cast(pl.String), check_names=False, null_equal=True)
    ]
    for name in differing:
        found.bad(f'"{name}" of some persons is not that of their household', where=_WHERE)
    if shared and not differing:
        found.checks.append(f"persons have the {', '.join(shared)} of their household")


def _no_order(rows: pl.Series, own: pl.DataFrame, found: Findings) -> None:
    """Check that persons come household by household, and inside each in an order that their values decide."""
    if not rows.is_sorted():
        found.bad(
            "persons are not in the order of the released households: it may be the order of the input", where=_WHERE
        )
        return
    if not own.width:
        return
    head = own.head(_PERSONS_COMPARED)
    person = pl.struct(pl.all()).rank("dense").cast(pl.String)
    houses = pl.DataFrame({"house": rows.head(head.height), "person": head.select(person).to_series()})
    written = houses.group_by("house").agg(
        pl.col("person").str.join(" ").alias("sequence"), pl.col("person").sort().str.join(" ").alias("persons")
    )
    orders = written.group_by("persons").agg(pl.col("sequence").n_unique())
    if orders.filter(pl.col("sequence") > 1).height:
        found.bad(
            "households with the same persons list them in different orders: it may be the order of the input",
            where=_WHERE,
        )
    else:
        found.checks.append("persons of a household are in an order that their values decide")


MOST_RECORDS = 20_000_000
NOTHING_MOVES: Final = "nothing can be swapped: the file is published as it is, and epsilon 0 is not protection"
_SPECIFICATION: Final = "public/specification.json"
_STRATA: Final = "public/strata.parquet"
_SHARE: Final = "stratum_expected_share_moved"
# Shares are sums in double precision: their last digits depend on the order of the values.
_SAME_SHARE: Final = 1e-9


def _audit_promise(
    bundle: BundleFiles, data: pl.DataFrame, ids: Sequence[str], mechanism: Any | None, found: Findings
) -> None:
    """Plan the released files again and compare specification and strata; where that is not done, say so.

    ``ids`` are the columns of ``data`` that no invariant has.
    """
    assert bundle.strata is not None
    if mechanism is None or data.height > MOST_RECORDS:
        too_many = f"there are more than {MOST_RECORDS:,} records"
        reason = too_many if mechanism else "the public files do not tell enough of the mechanism"
        found.unchecked.append(f"the budget and which strata are live, computed anew: {reason}")
        _audit_by_strata(data, bundle.specification, bundle.strata, found)
        return
    try:
        again = mechanism.plan(_microdata(bundle, data, ids), doubts=False)
    except StirredError as error:
        for problem in error.problems:
            found.bad(f"it cannot be swapped again under the plan of the bundle: {problem.what}", where="public/data")
        return
    if again.strata.largest_live is None and not again.perturbed:
        found.warnings.append(NOTHING_MOVES)
    _audit_specification(bundle, again, mechanism, found)
    _audit_strata(bundle.strata, mechanism.strata_table(again.strata), again.strata.match, found)


def _microdata(bundle: BundleFiles, data: pl.DataFrame, ids: Sequence[str]) -> Microdata:
    """Return the released files as something that can be swapped again."""
    persons = bundle.persons
    link = None if persons is None else next((name for name in ids if name in persons.columns), None)
    csv = any(bundle.public.glob("data.csv"))

    def filled(frame: pl.DataFrame) -> pl.DataFrame:
        # CSV has one way to write an empty text and a missing value, and codes may be empty texts.
        return frame.with_columns(pl.col(pl.String).fill_null("")) if csv else frame

    return Microdata(
        households=filled(data),
        persons=None if persons is None else filled(persons),
        hid=link,
        id=tuple(name for name in ids if name != link),
        household_source=bundle.source or bundle.specification.domain.name,
        called=bundle.called,
    )


def _audit_specification(bundle: BundleFiles, again: SwapPlan, mechanism: Any, found: Findings) -> None:
    """Compare the published promise with the one computed again; every fact that differs is a finding."""
    published = bundle.specification
    differences = [*_differences(bundle, _computed(bundle, again, mechanism))]
    for block, said, other in differences:
        found.bad(f"it says {said}, and the released file gives {other}", where=f"{_SPECIFICATION} {block}")
    if differences:
        return
    largest = again.strata.largest_live
    size = "no stratum has anything to swap" if largest is None else f"largest live stratum {largest.records:,} records"
    found.checks.append(f"budget {published.budget_text}: computed anew from the released file; {size}")
    if published.multiverse.hierarchies:
        found.unchecked.append("the geographic hierarchies in the specification: they come from a codebook")
    if bundle.manifest is None:
        found.unchecked.append("the settings of the mechanism: without manifest.json, specification.json is believed")
    elif not bundle.same_version:
        found.unchecked.append("assumptions and theorems in the specification: another version of stirred wrote them")


def _computed(bundle: BundleFiles, again: SwapPlan, mechanism: Any) -> Specification:
    """Return the promise computed again, with what no released file shows: dropped columns, stage and name.

    The stage is that of the plan; without a plan that states one, that of the specification itself is believed.
    """
    published, computed = bundle.specification, again.specification
    stated = published.domain.columns
    if stated and {n for n in stated if not n.startswith("person ")} == {*again.hold, *mechanism.swap}:
        computed = computed.with_flavor(domain=replace(computed.domain, columns=stated))
    computed = pull_back(computed, prepared=bundle.prepared).specification
    computed = with_accepted_names(computed, bundle.accepted)
    stage, after = published.domain.stage, published.input_premetric.post_imputation
    if bundle.stage is not None:
        stage, said = bundle.stage
        after = after_imputation(stage, said, flag=mechanism.swap_law.imputed)
    domain = replace(computed.domain, stage=stage, identity=published.domain.identity)
    if bundle.source is None:
        domain = replace(domain, name=published.domain.name, dataset=published.domain.dataset)
    elif domain.dataset in published.domain.dataset:  # earlier versions said more around these words
        domain = replace(domain, dataset=published.domain.dataset)
    return computed.with_flavor(domain=domain, input_premetric=replace(computed.input_premetric, post_imputation=after))


def _differences(bundle: BundleFiles, again: Specification) -> Iterator[tuple[str, str, str]]:
    """Yield each fact that differs, with what is said and what was computed."""
    published = bundle.specification
    for block in ("domain", "multiverse", "input_premetric", "output_premetric"):
        said, computed = (_plain(getattr(each, block)) for each in (published, again))
        for fact in fields(said):
            if fact.name == "consequences" and not said.consequences and not bundle.same_version:
                continue  # earlier versions of stirred did not write them down
            yield from _difference(f"{block} {fact.name}", getattr(said, fact.name), getattr(computed, fact.name))
    for name in ("settings_from", *(("assumptions", "theorem", "relies_on") if bundle.same_version else ())):
        yield from _difference(name, getattr(published, name), getattr(again, name))
    if not _same_budget(published.budget, again.budget, words=bundle.same_version):
        yield "budget", _in_words(published.budget), _in_words(again.budget)


def _difference(name: str, said: Any, computed: Any) -> Iterator[tuple[str, str, str]]:
    """Yield a fact if it differs; of a list, only what the other does not have."""
    if said == computed:
        return
    if isinstance(said, tuple) and isinstance(computed, tuple):
        only = [item for item in said if item not in computed], [item for item in computed if item not in said]
        said, computed = (", ".join(f"'{item}'" for item in items) or "nothing else" for items in only)
    yield name, f"{said}", f"{computed}"


def _plain(block: Any) -> Any:
    """Return a multiverse without hierarchies, its variables in one order; any other block as it is."""
    if not isinstance(block, Multiverse):
        return block
    invariants = (
        replace(each, variables=tuple(sorted(each.variables))) if isinstance(each, Margin) else each
        for each in block.invariants
    )
    return replace(block, invariants=tuple(invariants), hierarchies=())


def _same_budget(published: Budget, again: Budget, *, words: bool) -> bool:
    if words or isinstance(again.policy, PermutationSwapping):
        return published == again
    return (
        type(published.policy) is type(again.policy)
        and published.varies == again.varies
        and published.realised == again.realised
        and published.paper_epsilon == again.paper_epsilon
    )


def _in_words(budget: Budget) -> str:
    paper = "" if budget.paper_epsilon is None else f"; the paper's {budget.paper_epsilon.shown(3)}"
    return f"{budget.shown} ({budget.policy}{paper})"


def _audit_strata(published: pl.DataFrame, again: pl.DataFrame, match: Sequence[str], found: Findings) -> None:
    """Compare the strata as published with those of the released file, all columns of them."""
    if {*published.columns} != {*again.columns} or published.height != again.height:
        found.bad(
            f"it has {published.height:,} strata with {', '.join(published.columns)}, and the released file gives "
            f"{again.height:,} with {', '.join(again.columns)}",
            where=_STRATA,
        )
        return
    # Values as text: the released file may be CSV.
    both = [as_text(frame.select(again.columns)) for frame in (published, again)]
    said, computed = (frame.sort(match) if match else frame for frame in both)
    differing = [
        name for name in said.columns if name != _SHARE and not said[name].equals(computed[name], null_equal=True)
    ]
    shares = [frame[_SHARE].cast(pl.Float64, strict=False) for frame in (said, computed)]
    away = (shares[0] - shares[1]).abs()
    unsaid = [share.is_null() for share in shares]  # where a share is no function of the invariants
    if not unsaid[0].equals(unsaid[1]) or not bool((away <= _SAME_SHARE).all()):
        differing.append(_SHARE)
    for name in differing:
        found.bad(f"{name} is not that of the released file under the plan of the bundle", where=_STRATA)
    if not differing:
        found.checks.append(f"strata.parquet: {again.height:,} strata, computed anew from the released file")


def _audit_by_strata(data: pl.DataFrame, specification: Specification, strata: pl.DataFrame, found: Findings) -> None:
    """Count the sizes of strata again, and hold the budget against the list of strata."""
    needed = ["stratum_records", "stratum_live", "stratum_rate"]
    match = [name for name in strata.columns if not name.startswith("stratum_")]
    if missing := [name for name in needed if name not in strata.columns]:
        found.bad(f"it has no column {', '.join(missing)}", where=_STRATA)
        return
    if not {*match} <= {*data.columns} or not same_cells(
        strata.select(*match, pl.col("stratum_records").alias("count")), data, match
    ):
        found.bad("stratum_records is not that of the released file", where=_STRATA)
    else:
        found.checks.append(f"strata.parquet: {strata.height:,} strata, their records counted anew")
    policy = specification.budget.policy
    records = strata["stratum_records"]
    if strata.schema["stratum_live"] != pl.Boolean or not records.dtype.is_integer() or records.null_count():
        found.bad("stratum_live is not true or false, or stratum_records not a number", where=_STRATA)
        return
    if not strata["stratum_live"].any() and "stratum_response" not in strata.columns:
        found.warnings.append(NOTHING_MOVES)
    if not isinstance(policy, PermutationSwapping):
        return
    sizes = pl.when("stratum_live").then(pl.col("stratum_records").cast(pl.Int64)).otherwise(0)
    largest: dict[Fraction, int] = {}
    try:
        for text, size in strata.group_by(pl.col("stratum_rate").cast(pl.String)).agg(sizes.max()).rows():
            rate = probability(str(text), where="stratum_rate")
            largest[rate] = max(largest.get(rate, 0), size)
    except StirredError:
        found.bad("stratum_rate is not a rate", where=_STRATA)
        return
    if {*policy.strata} != {SwappedStrata(rate=rate, largest_stratum=size) for rate, size in largest.items()}:
        found.bad("its budget is not that of the strata in strata.parquet", where=_SPECIFICATION)
    else:
        found.checks.append("budget: that of the strata in strata.parquet")
