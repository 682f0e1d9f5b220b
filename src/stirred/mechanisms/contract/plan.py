"""What a plan says before anything random happens: the promise, what is disturbed, and the doubts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from zlib import adler32

import numpy as np
import polars as pl

from stirred.data import uniqueness
from stirred.data.microdata import Microdata, same_data, same_frame
from stirred.data.problems import bad_plan
from stirred.data.public_tables import ReleasedTable
from stirred.data.uniqueness import Uniqueness
from stirred.mechanisms.contract.release import PublicFile, ReleasedColumns
from stirred.spec.doubts import NOTHING_PROMISED, Doubt, accepted_in_words, nothing_promised
from stirred.spec.exact import Exact
from stirred.spec.explanation import promise_rows, published_exactly
from stirred.spec.specification import ONE_RUN, Specification
from stirred.spec.text import Row, rows_text

# The one doubt of a plan that was made with ``doubts=False``: it is for comparing, and cannot be released.
UNSEARCHED: Final = Doubt(
    kind="not-searched",
    what="this plan was made without searching for doubts (doubts=False), and cannot be released",
    remedy="give release what plan(data) returns, or leave plan out",
    final=True,
)
# That of a plan by which a law is tested (``for_sampling``): whatever it draws is marked as a test run.
SAMPLED: Final = Doubt(
    kind="sampled",
    what="this plan is for test draws, which need a seed; it cannot be released",
    remedy="draw with Entropy.from_seed(...), or give release what plan(data) returns",
    final=True,
)
# That of an excerpt, which a release is rehearsed on: its promise is that of the whole file.
REHEARSED: Final = Doubt(
    kind="rehearsal",
    what="this plan is for a draw that is thrown away; it cannot be released",
    remedy="give release what plan(data) returns",
    final=True,
)
_HELD_IN_PLANS: Final = ("stirred.mechanisms", "stirred.data.codes")
_MOST_NAMED: Final = 12  # columns of a wide file are counted beyond it, and named by --verbose


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a plan says: a label and a sentence for people, and the same as values for ``--json``.

    A fact without a sentence is for JSON alone; one without values is said in words only. Values that are lengthy
    are ``for_plans``, and left out where a run says what it has done. Those that quote the file are ``confidential``
    until the plan may be released.
    """

    label: str = ""
    sentence: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    for_plans: bool = False
    confidential: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PlanOrigin:
    """The mechanism that made a plan, and the data: a release with another of them would not keep its promise.

    ``seal`` is what the plan held when it was made, ``frames`` are the tables as they were then, and ``contents`` are
    checksums of the arrays and tables of the plan: by these a release knows a changed copy, and a file or a plan that
    was changed in place.
    """

    mechanism: Any
    data: Any
    seal: Mapping[str, Any] | None = field(default=None, repr=False)
    frames: tuple[Any, ...] = field(default=(), repr=False)
    contents: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(ABC):
    """What a mechanism would do to a file: nothing random has happened.

    Printed, it says what is unchanged and disturbed, what is promised, and its doubts. ``Mechanism.plan``
    fills in the doubts and ``origin``, which a release compares. ``accepted`` are the names of the doubts that the
    specification has among its conditions, ``dropped`` the columns of the input that are not released.
    ``exposure_doubts`` are those about whom the release exposes, where a policy judged that; by default they are
    computed.
    """

    specification: Specification
    doubts: tuple[Doubt, ...] = (UNSEARCHED,)
    accepted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    exposure_doubts: tuple[Doubt, ...] | None = None
    origin: Any = field(default=None, repr=False)
    unreleased: ClassVar[str] = "dropped"  # the word for them: of tables, columns are used or not

    @property
    @abstractmethod
    def disturbed(self) -> str:
        """Say what is disturbed, and how much."""

    @property
    def unchanged(self) -> str:
        """Say what is published exactly."""
        return published_exactly(self.specification)

    @property
    def published_figures(self) -> str:
        """Say for readers of the release which figures are exact; records that nothing can change are no figures."""
        return published_exactly(self.specification) if self.publishes_fixed else self.unchanged

    @property
    def publishes_fixed(self) -> bool:
        """Say whether the figures that the specification holds fixed are published, or only kept on the way."""
        return True

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what else there is to say: sentences for ``--verbose``, values for JSON."""
        return ()

    @property
    def also_promised(self) -> str:
        """Say what the release promises relative to further invariants, if anything."""
        return ""

    @property
    def why_this_number(self) -> str:
        """Say how the loss stands to published bounds and to the exact loss, if there is anything to say."""
        return ""

    @property
    def sampled(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the sample whose draw amplifies the loss, for the ledger: its name, ``design`` and ``inner`` loss."""
        return None

    def promising(self, specification: Specification, *, accepted: tuple[str, ...] = ()) -> Self:
        """Return the same plan with its promise said more fully: with hierarchies, or with accepted doubts.

        Its loss, how that is measured, and everything that it is relative to, are those of the mechanism.
        """
        self._check_promise(specification, self.specification)
        if accepted and accepted_in_words(accepted) not in specification.assumptions:
            what = "the specification does not say which doubts were accepted"
            raise bad_plan(what, where="accepted", remedy="leave it out, and give release accept=[...]")
        return self._resealed(specification=specification, **({"accepted": accepted} if accepted else {}))

    @staticmethod
    def _check_promise(stated: Specification, own: Specification) -> None:
        """Refuse a promise that says less, or something else, than that of the mechanism.

        A plan that was run before cannot rely on being the one run; the accepted doubt stands in its place.
        """
        relied, assumed = {*own.relies_on} - {ONE_RUN}, {*own.assumptions} - {ONE_RUN.words}
        if (stated.budget, stated.output_premetric) != (own.budget, own.output_premetric):
            what = f"the plan loses {own.budget_text}, and this states {stated.budget_text}"
        elif stated.input_premetric != own.input_premetric or stated.domain.columns != own.domain.columns:
            what = "this states another unit, distance or set of columns than the plan"
        elif {*stated.multiverse.invariants} != {*own.multiverse.invariants}:
            what = "this does not hold fixed what the plan holds fixed"
        elif not (
            relied <= {*stated.relies_on} and assumed <= {*stated.assumptions} and {*own.alone} <= {*stated.alone}
        ):
            what = "this leaves out conditions of the promise"
        else:
            return
        raise bad_plan(what, where="specification", remedy="change the settings of the mechanism, and plan again")

    def _resealed(self, **changed: Any) -> Self:
        """Return the plan with some of it changed by its own methods; refuse a copy that was changed by others."""
        if others := self._changed():
            what = f"the plan is not as it was made: {', '.join(others)} changed since, in a copy"
            raise bad_plan(what, where="plan", remedy="take the plan as mechanism.plan(data) returns it")
        return replace(self, **changed)._sealed()

    def _sealed(self) -> Self:
        """Return the plan with a note of all that it holds, by which a release knows a changed copy."""
        origin = self.origin
        # A clone stays as it is when the other is changed in place; the values are not copied.
        frames = origin.frames or tuple(
            frame.clone() if isinstance(frame, pl.DataFrame) else frame
            for frame in (origin.data.households, origin.data.persons)
        )
        contents = self._contents() if origin.contents is None else origin.contents
        return replace(self, origin=replace(origin, seal=self._held(), frames=frames, contents=contents))

    def _contents(self) -> Mapping[str, Any]:
        stated = {each.name for each in fields(Plan)}  # what a plan says: nothing of it can be changed in place
        return {name: checksums(value) for name, value in self._held().items() if name not in stated}

    def _changed(self) -> list[str]:
        held, sealed = self._held(), self.origin.seal
        return [name for name in held if name not in sealed or held[name] is not sealed[name]]

    def _held(self) -> Mapping[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "origin"}

    def fault(self, mechanism: Any, data: Microdata) -> str:
        """Say why this is not the plan that a mechanism made for these data; empty where it is, as it was made.

        A release with another one would not keep the promise, or not face the doubts, that the plan states.
        """
        origin = self.origin
        if origin is None or origin.seal is None:
            return "keeps no note of who made it for which data: Mechanism.plan adds it to what draft returns"
        if origin.mechanism != mechanism:
            return "was made for another mechanism, or the same with other settings"
        if not same_data(origin.data, data):
            return "was made for other data"
        changed = self._changed()
        now = self._contents()
        changed += [name for name in now if name not in changed and now[name] != origin.contents.get(name)]
        if not all(map(same_frame, origin.frames, (origin.data.households, origin.data.persons))):
            changed.append("data")
        return f"is not as it was made: {', '.join(changed)} changed since, in a copy or in place" if changed else ""

    @property
    def includes(self) -> Sequence[ReleasedTable]:
        """Return the tables of earlier releases whose promises are part of this one."""
        return ()

    @property
    def unrelated(self) -> Sequence[ReleasedTable]:
        """Return those of ``includes`` of which nothing shows that they were released from the same dataset."""
        return ()

    @property
    def given(self) -> Sequence[ReleasedTable]:
        """Return the tables of earlier releases that this one rests on, and that are accounted for on their own."""
        return ()

    def restated(self, change: Callable[[Specification], Specification]) -> Self:
        """Return the plan with what its own mechanism promises said otherwise."""
        return self.promising(change(self.specification))

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the input that may be in public files, by record type (households, persons)."""
        return {"households": self.specification.domain.columns}

    def released_columns(self, data: Any) -> ReleasedColumns:
        """Return the columns of a file that may be in public files."""
        link = str(data.hid) if data.persons is not None else None
        return ReleasedColumns.of(self.specification, self.releases, link=link)

    def files(self, mechanism: Any, data: Any) -> Sequence[PublicFile]:
        """Return the public files of a release with this plan, besides tables and pages."""
        found: Sequence[PublicFile] = mechanism.files(self.released_columns(data), data, self)
        return found

    @property
    def dropped_in_short(self) -> str:
        """Return the columns that are not released, or of a wide file how many they are."""
        if len(self.dropped) <= _MOST_NAMED:
            return ", ".join(self.dropped)
        return f"{len(self.dropped):,} columns, such as {', '.join(self.dropped[:3])}"

    @property
    def epsilon(self) -> Exact:
        """Return the loss at the realised universe."""
        return self.specification.budget.realised

    @property
    def moved(self) -> float | None:
        """Return the share of all records that are expected to be disturbed; None where it is not said."""
        return None

    def outcome(self) -> list[Row]:
        """Return what is unchanged, disturbed and dropped, and the promise, as labelled sentences."""
        return [
            ("unchanged", self.unchanged),
            ("disturbed", self.disturbed),
            *([(self.unreleased, self.dropped_in_short)] if self.dropped else []),
            *([("prepared", prepared)] if (prepared := self.specification.domain.prepared_in_words) else []),
            *promise_rows(self.specification),
        ]

    def __str__(self) -> str:
        return rows_text([*self.outcome(), *doubt_rows(plan_doubts(self))])

    def __repr__(self) -> str:
        return str(self)


def checksums(value: Any) -> Any:
    """Return checksums of the arrays and tables that a part of a plan holds, and nothing of what cannot be changed.

    >>> import numpy as np
    >>> codes = np.arange(3)
    >>> before = checksums({"codes": codes})
    >>> codes[0] = 7
    >>> checksums({"codes": codes}) == before
    False
    """
    if isinstance(value, np.ndarray):
        return (
            None if value.dtype.hasobject else (value.shape, value.dtype.str, adler32(np.ascontiguousarray(value).data))
        )
    if isinstance(value, pl.DataFrame):
        return value.schema, {name: checksums(value[name].hash().to_numpy()) for name in value.columns}
    if isinstance(value, Mapping):
        return {key: checksums(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [checksums(each) for each in value]
    if is_dataclass(value) and type(value).__module__.startswith(_HELD_IN_PLANS):
        return {each.name: checksums(getattr(value, each.name)) for each in fields(value)}
    return None


def for_rehearsal(plan: Any, specification: Specification) -> Any:
    """Return the plan of an excerpt with the promise of the whole file, for a draw that is thrown away with its key."""
    return replace(plan, specification=specification, doubts=(*plan.doubts, REHEARSED))._sealed()


def judged_by_policy(plan: Any, *, most: Fraction, set_by: str) -> Any:
    """Return the plan with the doubts about whom it exposes, by the share of unique records that a policy allows."""
    found = tuple(exposed_doubts(plan_exposure(plan), plan, most=most, set_by=set_by))
    return plan._resealed(exposure_doubts=found)


def for_sampling(plan: Any) -> Any:
    """Return the plan by which a law is tested, on files that a release would refuse: seeded draws alone."""
    return replace(plan, doubts=(SAMPLED,))._sealed()


def settings_doubts(settings_from: str | None) -> Iterator[Doubt]:
    """Yield the doubt about settings that were chosen on the confidential file."""
    if settings_from == "this-data":
        yield Doubt(
            kind="settings-from-this-data",
            what="settings chosen by looking at the confidential file void the guarantee",
            remedy="choose them by policy, from the invariants, or on an earlier or synthetic file",
            final=True,
        )


def check_seeded(plan: Plan, *, seeded: bool) -> None:
    """Refuse a release with a promise that includes a test run: its seed undoes its protection."""
    if plan.specification.seeded and not seeded:
        raise bad_plan(
            "it builds on a test run with a seed, which protects nobody",
            where="plan",
            remedy="name a release that was made without a seed; or make this one a test run, too (--seed)",
        )


def plan_doubts(plan: Plan) -> tuple[Doubt, ...]:
    """Return all doubts about a plan: its own, and those of any mechanism.

    The latter are about settings, an infinite loss, earlier releases, and records that are unique on what is published
    unchanged.
    """
    settings_from = plan.origin.mechanism.settings_from
    doubts = dict.fromkeys((*settings_doubts(settings_from), *plan.doubts, *map(_unrelated, plan.unrelated)))
    if not any(each.final for each in doubts):
        judged = plan.exposure_doubts
        doubts |= dict.fromkeys(exposed_doubts(plan_exposure(plan), plan) if judged is None else judged)
    if plan.epsilon.is_infinite and not any(each.final or each.kind == NOTHING_PROMISED for each in doubts):
        doubts[nothing_promised("nothing is promised: the loss is infinite", remedy="choose other settings")] = None
    return (*doubts,)


def plan_exposure(plan: Plan) -> Uniqueness | None:
    """Return how many records are unique on what is published exactly; None where they are not counted."""
    data: Microdata = plan.origin.data
    if not plan.publishes_fixed or not uniqueness.counted(data):
        return None
    # Who is unique on a column that is dropped is found by no one.
    shown = replace(data, keep_persons=tuple(plan.releases.get("persons", ())))
    found = uniqueness.exposure(plan.specification, shown, exchanged=plan.origin.mechanism.areas)
    return None if found is None else found[0]


def exposed_doubts(
    found: Uniqueness | None, plan: Plan, *, most: Fraction | None = None, set_by: str = "the default"
) -> Iterator[Doubt]:
    """Yield the doubt about released records that are unique on what is published unchanged.

    ``most`` is how large their share may be, and ``set_by`` says who allows it.
    """
    mechanism = plan.origin.mechanism
    if found is None or {*found.keys} & {*mechanism.areas}:
        return  # who is alone with exchanged values stands as a 1 in a table, and the record may be another's
    if not any(file.kind == "records" for file in plan.files(mechanism, plan.origin.data)):
        return
    most = uniqueness.MOST_EXPOSED if most is None else most
    if (doubt := uniqueness.exposed_doubt(found, most=most, set_by=set_by)) is not None:
        yield doubt


def _unrelated(table: ReleasedTable) -> Doubt:
    """Return the doubt about an earlier release that may be of another file of equal name: losses would not add up."""
    name = Path(table.file).name
    return Doubt(
        kind="earlier-dataset",
        about=name,
        what=f"nothing shows that {table.file} ('{table.title}') was released from the same dataset: no checksum of "
        "the file, no ledger that both have, and no stated name of files whose checksums do not differ. The promise of "
        "both together holds for one dataset",
        remedy="name it in the bundle of that release, which keeps the checksum of its file, or use the ledger that "
        "has it. If you know that it is the same dataset, accept this: specification and manifest keep that",
    )


def doubt_rows(doubts: Sequence[Doubt], *, accepted: Sequence[Doubt] = ()) -> list[Row]:
    """Return one row for each doubt, by its name, with what became of it; what refuses nothing is a note.

    >>> mark = Doubt(kind="identifier", about="mark", what='"mark" is unique', remedy="name it with id")
    >>> doubt_rows([mark])
    [('doubt', 'identifier:mark (refuses the release): "mark" is unique')]
    >>> doubt_rows([mark], accepted=[mark])
    [('doubt', 'identifier:mark (accepted): "mark" is unique')]
    >>> doubt_rows([])
    [('doubts', 'none')]
    """
    names = {each.name for each in accepted}
    rows = [
        ("doubt", f"{doubt.name} ({'accepted' if doubt.name in names else 'refuses the release'}): {doubt.what}")
        for doubt in doubts
        if doubt.refuses
    ]
    return [*(rows or [("doubts", "none")]), *(("note", doubt.what) for doubt in doubts if not doubt.refuses)]
