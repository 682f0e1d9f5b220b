"""The bundle of a swap from its files alone: invariants, new identifiers, budget, strata and persons.

Persons belong to released households, live where these do, and tell no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, as_text, issued_anew, rows_of, same_cells
from stirred.data.codes import tells_records_apart
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.files import MOST_PERSONS, digest_named, held_digest
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.accepted import with_accepted_names
from stirred.spec.budget import Budget, PermutationSwapping, SwappedStrata
from stirred.spec.domain import after_imputation
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Invariant, Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import StirredError
from stirred.spec.pull_back import pull_back
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.mechanisms.records.engine import Swap
if TYPE_CHECKING:
    from stirred.mechanisms.records.engine import Swap


_INVARIANTS: Final = "public/invariants.parquet"


def audit_records(bundle: BundleFiles, mechanism: Swap | None, disturbed: Sequence[str], found: Findings) -> None:
    """Check everything that a swap says of its released records; None is a swap whose settings are not known in full.

    ``disturbed`` are released variables that no invariant fixes.
    """
    data = bundle.data
    if data is None:
        return
    margins = [m for m in bundle.specification.multiverse.invariants if isinstance(m, Margin)]
    digest = _audit_invariants(bundle, margins, data, found)
    known = {*disturbed, *(variable for margin in margins for variable in margin.variables)}
    ids = _identifiers(data, known, found)
    if bundle.strata is not None and (bundle.persons is not None or not bundle.has_persons):
        audit_promise(bundle, data, ids, mechanism, found)
    if bundle.persons is not None:
        if digest is None:
            _no_digest(bundle, bundle.persons, found)
        # What was held are the columns of the last table of the invariants.
        held = [name for name in data.columns if margins and name in margins[-1].variables]
        audit_persons(bundle.persons, data, ids, held, digest, found)


def _audit_invariants(
    bundle: BundleFiles, margins: Sequence[Margin], data: pl.DataFrame, found: Findings
) -> str | None:
    """Count every table of the invariants anew; return the digest of what households hold with their persons."""
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
    digests = [digest for name in tables if (digest := digest_named(name)) is not None]
    names = [name for name in tables if digest_named(name) is None]
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
    """Check that a column outside every invariant is a number issued anew: 1, 2, ... in the released order."""
    extra = [name for name in data.columns if name not in known]
    for name in extra:
        if wrong := _not_issued_anew(data[name]):
            found.bad(f'"{name}" is in no invariant and {wrong}', where="public/data")
        else:
            found.checks.append(f'identifiers "{name}" are 1 to {data.height:,}')
    return extra


def _not_issued_anew(column: pl.Series) -> str | None:
    """Return what is wrong with a column that should be 1, 2, ... in the released order."""
    if issued_anew(column):
        return None
    if issued_anew(column.cast(pl.Int64, strict=False).sort()):
        return f"is 1 to {len(column):,} in another order than the rows: the rows were put in another order"
    if tells_records_apart(column):
        return f"is not 1 to {len(column):,}: an old identifier tells records apart"
    return "is no new identifier: the specification says nothing about it"


def _no_digest(bundle: BundleFiles, persons: pl.DataFrame, found: Findings) -> None:
    """Say that nothing is published with which the persons could be compared; where it should be, that is wrong."""
    if bundle.same_version and persons.height <= MOST_PERSONS:
        found.bad("the checksum of the hold table with persons is missing", where=_INVARIANTS)
        return
    found.unchecked.append(
        "whether the persons are those of the input: invariants.parquet has the variables of households only, and no "
        "checksum of what they hold with their persons"
    )


_WHERE: Final = "public/persons"
# Households of more persons than this are not compared one by one: the first ones stand for all.
_PERSONS_COMPARED: Final = 5_000_000


def audit_persons(
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


def audit_promise(
    bundle: BundleFiles, data: pl.DataFrame, ids: Sequence[str], mechanism: Swap | None, found: Findings
) -> None:
    """Plan the released files again and compare specification and strata; where that is not done, say so.

    ``ids`` are the columns of ``data`` that no invariant has.
    """
    assert bundle.strata is not None
    reason = None
    if mechanism is None:
        reason = "the public files do not tell enough of the mechanism"
    elif data.height > MOST_RECORDS:
        reason = f"there are more than {MOST_RECORDS:,} records"
    if mechanism is None or reason is not None:
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


def _audit_specification(bundle: BundleFiles, again: SwapPlan, mechanism: Swap, found: Findings) -> None:
    published = bundle.specification
    computed = _about_columns(published, again)
    if not same_promise(bundle, computed, mechanism, found, gives="the released file gives"):
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


def same_promise(bundle: BundleFiles, computed: Specification, mechanism: Swap, found: Findings, *, gives: str) -> bool:
    """Say whether the published promise is the one computed anew; every fact that differs is a finding."""
    computed = pull_back(computed, prepared=bundle.prepared).specification
    computed = with_accepted_names(computed, bundle.accepted)
    differences = [*_differences(bundle, _at_stage(bundle, computed, mechanism))]
    for block, said, other in differences:
        found.bad(f"it says {said}, and {gives} {other}", where=f"{_SPECIFICATION} {block}")
    return not differences


def _at_stage(bundle: BundleFiles, computed: Specification, mechanism: Swap) -> Specification:
    """Return the promise computed anew at the stage that the plan states; no released file shows it.

    Without a plan that states one, the stage of the specification itself is believed.
    """
    published = bundle.specification
    stage, said = published.domain.stage, published.input_premetric.post_imputation
    if bundle.stage is not None:
        stage, stated = bundle.stage
        said = after_imputation(stage, stated, flag=mechanism.imputed_flag)
    return computed.with_flavor(
        domain=replace(computed.domain, stage=stage),
        input_premetric=replace(computed.input_premetric, post_imputation=said),
    )


def _about_columns(published: Specification, again: SwapPlan) -> Specification:
    """Return the promise computed anew, about the released columns of a file that may have had others."""
    computed, stated = again.specification, published.domain.columns
    of_records = {*again.hold, *again.origin.mechanism.swap}
    if stated and {name for name in stated if not name.startswith("person ")} == of_records:
        return computed.with_flavor(domain=replace(computed.domain, columns=stated))
    return computed


def _differences(bundle: BundleFiles, again: Specification) -> Iterator[tuple[str, str, str]]:
    """Yield each fact that differs, with what is said and what was computed."""
    published = bundle.specification
    domain = replace(again.domain, identity=published.domain.identity)
    if bundle.source is None:
        domain = replace(domain, name=published.domain.name, dataset=published.domain.dataset)
    elif domain.dataset in published.domain.dataset:  # earlier versions said more around these words
        domain = replace(domain, dataset=published.domain.dataset)
    blocks: list[tuple[str, Any, Any]] = [
        ("domain", published.domain, domain),
        ("multiverse", _plain(published.multiverse), _plain(again.multiverse)),
        ("input_premetric", published.input_premetric, again.input_premetric),
        ("output_premetric", published.output_premetric, again.output_premetric),
    ]
    for block, said, computed in blocks:
        for fact in fields(said):
            if fact.name == "consequences" and not said.consequences and not bundle.same_version:
                continue  # earlier versions of stirred did not write them down
            yield from _difference(f"{block} {fact.name}", getattr(said, fact.name), getattr(computed, fact.name))
    yield from _difference("settings_from", published.settings_from, again.settings_from)
    if bundle.same_version:
        yield from _difference("assumptions", published.assumptions, again.assumptions)
        yield from _difference("theorem", published.theorem, again.theorem)
        yield from _difference("relies_on", published.relies_on, again.relies_on)
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


def _plain(multiverse: Multiverse) -> Multiverse:
    """Return a multiverse without hierarchies, its variables in one order."""

    def ordered(invariant: Invariant) -> Invariant:
        if not isinstance(invariant, Margin):
            return invariant
        return replace(invariant, variables=tuple(sorted(invariant.variables)))

    return replace(multiverse, invariants=tuple(map(ordered, multiverse.invariants)), hierarchies=())


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
    """Count the sizes of strata anew, and hold the budget against the list of strata."""
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
    try:
        listed = _largest_live(strata)
    except StirredError:
        found.bad("stratum_rate is not a rate", where=_STRATA)
        return
    if {*policy.strata} != listed:
        found.bad("its budget is not that of the strata in strata.parquet", where=_SPECIFICATION)
    else:
        found.checks.append("budget: that of the strata in strata.parquet")


def _largest_live(strata: pl.DataFrame) -> set[SwappedStrata]:
    sizes = pl.when("stratum_live").then(pl.col("stratum_records").cast(pl.Int64)).otherwise(0)
    largest = strata.group_by(pl.col("stratum_rate").cast(pl.String)).agg(sizes.max().alias("size"))
    rates: dict[Fraction, int] = {}
    for text, size in largest.rows():
        rate = probability(str(text), where="stratum_rate")
        rates[rate] = max(rates.get(rate, 0), size)
    return {SwappedStrata(rate=rate, largest_stratum=size) for rate, size in rates.items()}
