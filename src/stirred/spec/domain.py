"""Who is eligible for protection: the domain, the set of datasets a mechanism may be given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Self

from stirred.spec.block import Block
from stirred.spec.invariant import ALL
from stirred.spec.problems import Problem, SpecificationError, unknown_name, wrong

# Where the mechanism starts in the life of the data (section 2.4.2 of the dissertation): protection
# is for the data as they are at this point, not before it.
STAGES: Final = {
    "as-given": "it is given to the mechanism",
    "raw-responses": "the answers as respondents gave them",
    "edited-file": "the file after coding, editing and imputation",
    "sample": "the sampled units, after the sample was drawn",
    "population": "the whole population, before a sample is drawn",
    "transmitted-record": "one person's own record, before anyone else sees it",
}
AS_GIVEN: Final = "as-given"
BEFORE_A_SAMPLE: Final = {"population", "frame"}
# Stages that say by themselves whether records may hold answers that imputation copied from others.
_AFTER_IMPUTATION: Final = {"edited-file": True, "raw-responses": False, "transmitted-record": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Block):
    """The set of datasets that could have been the input, and at which stage of their life.

    ``dataset`` says in words what a dataset is. ``record_types``, ``columns`` and ``prepared`` say what a release looks
    at: files that differ only elsewhere are the same to it (:meth:`sees_no_more_than`). ``prepared`` says by column
    what was done to each record before the mechanism saw it, and by ``*`` what was done to the file
    (:func:`stirred.spec.convert.pull_back`); columns and invariants are then those of the prepared file, and the
    datasets still those of the file as it was. ``datasets`` optionally lists all datasets, for audits on small
    examples. ``identity`` is what is known besides words about which file it is (:func:`file_identity`). The
    first is never written to a file, and of the second no checksum: it would let anyone test a guess of the whole file.

    >>> Domain(name="CEF", dataset="a Census Edited File", stage="edited-file").stage_in_words
    'the file after coding, editing and imputation'
    """

    in_file: ClassVar = ("name", "dataset", "stage", "record_types", "columns", "prepared", "name_is_stated")
    left_out: ClassVar = ("columns", "prepared", "name_is_stated")
    needed: ClassVar = ("stage",)

    name: str
    dataset: str
    stage: str = AS_GIVEN
    record_types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    prepared: Annotated[
        tuple[tuple[str, str], ...], "columns that were made coarser before, record by record, and how"
    ] = ()
    datasets: tuple[Hashable, ...] | None = field(default=None, compare=False, repr=False)
    identity: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.dataset.strip():
            raise wrong(
                "a domain needs a name and a sentence saying what a dataset is",
                where="domain",
                remedy='write such as name="CEF", dataset="a Census Edited File"',
            )
        if not self.stage.strip():
            raise unknown_name(self.stage, STAGES, where="domain stage", called="a stage")

    @classmethod
    def of_file(
        cls, name: str, *, stage: str = AS_GIVEN, record_types: tuple[str, ...] = (), columns: tuple[str, ...] = ()
    ) -> Domain:
        """Return the domain of a confidential file, in the words that all mechanisms share.

        >>> Domain.of_file("homes").dataset
        "the confidential file 'homes'"
        """
        words = f"the confidential file '{name}'"
        return cls(name=name, dataset=words, stage=stage, record_types=record_types, columns=columns)

    @classmethod
    def from_file(cls, facts: dict[str, Any], computed: dict[str, Any]) -> Self:
        """Return the domain; that its name is stated, and not that of a file, only the file itself can say."""
        stated = file_identity(name=facts["name"]) if computed.get("name_is_stated") else frozenset[str]()
        return cls(**facts, identity=stated)

    @property
    def whole(self) -> Domain:
        """Return the domain of the whole file as it was, all its columns and kinds of records."""
        narrow = self.columns or self.record_types or self.prepared
        return replace(self, columns=(), record_types=(), prepared=()) if narrow else self

    @property
    def looked_at(self) -> tuple[Hashable, ...]:
        """Return what of the file a release looks at, in no order."""
        return frozenset(self.record_types), frozenset(self.columns), self.prepared

    def is_file_of(self, other: Domain) -> bool:
        """Say whether both are about one file, whatever they look at and at whatever stage.

        What both know of it decides: a ledger, a checksum or a stated name that they share, or checksums that differ.
        Where that decides nothing, the words do.

        >>> old = Domain(name="homes", dataset="the released columns of the confidential file 'homes'")
        >>> old.is_file_of(Domain.of_file("homes"))
        False
        >>> entry = file_identity(ledger="c2a1")
        >>> replace(old, identity=entry).is_file_of(replace(Domain.of_file("homes"), identity=entry))
        True
        """
        if self.identity & other.identity:
            return True
        if all(any(known.startswith(_FILE) for known in one.identity) for one in (self, other)):
            return False
        return (self.name, self.dataset) == (other.name, other.dataset)

    @property
    def name_is_stated(self) -> bool:
        """Say whether somebody stated the name, so that another file of that name is the same by their word."""
        return f"{_NAME}{self.name}" in self.identity

    def is_known_as(self, earlier: Domain) -> bool:
        """Say whether something besides words shows that an earlier release was made of this file.

        That is a checksum, a ledger or a release that both know. A name that both state shows it where checksums do
        not speak against it; one that was taken from the name of a file shows nothing.

        >>> now = replace(Domain.of_file("Register"), identity=file_identity(files=["9f86d0"], name="Register"))
        >>> now.is_known_as(Domain.of_file("Register"))
        False
        >>> now.is_known_as(replace(Domain.of_file("Register"), identity=file_identity(name="Register")))
        True
        >>> now.is_known_as(replace(now, identity=file_identity(files=["60303a"], name="Register")))
        False
        """
        shared = self.identity & earlier.identity
        if any(not known.startswith(_NAME) for known in shared):
            return True
        if all(any(known.startswith(_FILE) for known in one.identity) for one in (self, earlier)):
            return False
        return bool(shared)

    def is_stage_of(self, other: Domain) -> bool:
        """Say whether both are at one stage, as far as both say it.

        A promise about what a sample was drawn from, in words of its own, is not about the file as it was given.
        """
        if AS_GIVEN not in (self.stage, other.stage):
            return self.stage == other.stage
        return self.dataset == other.dataset or not {self.stage, other.stage} & BEFORE_A_SAMPLE

    def sees_no_more_than(self, other: Domain) -> bool:
        """Say whether files that are the same to ``other`` are the same here: distances here are then no larger.

        Nothing listed means everything. A column made coarser, record by record, sees less than the column as it was.

        >>> county = Domain.of_file("homes", columns=("county",))
        >>> county.sees_no_more_than(Domain.of_file("homes")), Domain.of_file("homes").sees_no_more_than(county)
        (True, False)
        """
        listed = ((self.record_types, other.record_types), (self.columns, other.columns))
        if any(theirs and not (mine and {*mine} <= {*theirs}) for mine, theirs in listed):
            return False
        return self.prepared == other.prepared or not other.prepared

    @property
    def prepared_in_words(self) -> str:
        """Return what was done to each record before, column by column; empty where nothing was.

        >>> Domain(name="f", dataset="a file", prepared=(("age", "top-coded at 90"),)).prepared_in_words
        'age top-coded at 90'
        """
        return "; ".join(f"{'the file' if column == ALL else column} {words}" for column, words in self.prepared)

    @property
    def stage_in_words(self) -> str:
        """Return the stage in plain words; a stage of your own stands for itself."""
        return STAGES.get(self.stage, self.stage)


_FILE: Final = "file "
_NAME: Final = "name "


def file_identity(
    *, ledger: str = "", files: Iterable[str] = (), name: str = "", releases: Iterable[str] = ()
) -> frozenset[str]:
    """Return what tells which file it is: the ledger that accounts for it, checksums of its files, a stated name.

    ``releases`` are checksums of releases that are known to be of this file.

    It stays inside: checksums are no part of a specification. The id of a ledger is public, and that a name is stated.

    >>> sorted(file_identity(ledger="c2a1", files=["9f86d0"], name="Register 2024"))
    ['file 9f86d0', 'ledger c2a1', 'name Register 2024']
    """
    stated = [f"{kind} {value}" for kind, value in (("ledger", ledger), ("name", name)) if value]
    return frozenset([*stated, *(f"{_FILE}{each}" for each in files), *(f"release {each}" for each in releases)])


def after_imputation(stage: str, said: bool | None = None, *, flag: str | None = None) -> bool | None:
    """Return whether the records of a file are records after imputation; None where nothing says so.

    ``said`` is what somebody declared, ``flag`` a column that marks imputed records. All that is said must agree.

    >>> after_imputation("edited-file"), after_imputation("raw-responses"), after_imputation("as-given")
    (True, False, None)
    """
    problems: list[Problem] = []
    if stage not in STAGES:
        problems += unknown_name(stage, STAGES, where="stage", called="a stage").problems
    known = _AFTER_IMPUTATION.get(stage)
    if None not in (said, known) and said is not known:
        what = f"at the stage {stage} ({STAGES[stage]}) records are {'after' if known else 'before'} imputation"
        remedy = f"write {str(known).lower()}, or another stage, such as {AS_GIVEN}"
        problems.append(Problem(what=what, where="post_imputation", remedy=remedy))
    if flag is not None and (said is False or known is False):
        where = "post_imputation" if said is False else "stage"
        what = f"{flag} flags imputed records, so the file is one after imputation"
        problems.append(Problem(what=what, where=where, remedy="leave it out: the column says it"))
    if problems:
        raise SpecificationError(problems)
    return True if flag is not None else known if said is None else said
