"""Who is eligible for protection: the domain, the set of datasets a mechanism may be given."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from stirred.spec.invariant import ALL
from stirred.spec.problems import Problem, SpecificationError, wrong

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
# Stages that say by themselves whether records may hold answers that imputation copied from others.
_AFTER_IMPUTATION: Final = {"edited-file": True, "raw-responses": False, "transmitted-record": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The set of datasets that could have been the input, and at which stage of their life.

    ``columns`` are the columns it is about, where the file has further ones: two files that differ only in
    others are the same dataset here, and different ones for a release that uses those. ``prepared`` says by column
    what was done to each record before the mechanism saw it, and by ``*`` what was done to the file
    (:func:`stirred.spec.pull_back.pull_back`); columns and invariants are then those of the prepared file, and the
    datasets still those of the file as it was. ``datasets`` optionally lists all datasets, for audits on small
    examples; it is no part of the domain's identity and is never written to a file.

    >>> Domain(name="CEF", dataset="a Census Edited File", stage="edited-file").stage_in_words
    'the file after coding, editing and imputation'
    """

    name: str
    dataset: str
    stage: str = AS_GIVEN
    record_types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    prepared: tuple[tuple[str, str], ...] = ()
    datasets: tuple[Hashable, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.dataset.strip():
            raise wrong(
                "a domain needs a name and a sentence saying what a dataset is",
                where="domain",
                remedy='write such as name="CEF", dataset="a Census Edited File"',
            )
        if not self.stage.strip():
            raise wrong("the stage is empty", where="domain stage", remedy=f"one of {', '.join(STAGES)}")

    @property
    def whole(self) -> Domain:
        """Return the domain of the whole file as it was, all its columns and kinds of records."""
        narrow = self.columns or self.record_types or self.prepared
        return replace(self, columns=(), record_types=(), prepared=()) if narrow else self

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


def after_imputation(stage: str, said: bool | None = None, *, flag: str | None = None) -> bool | None:
    """Return whether the records of a file are records after imputation; None where nothing says so.

    ``said`` is what somebody declared, ``flag`` a column that marks imputed records. All that is said must agree.

    >>> after_imputation("edited-file"), after_imputation("raw-responses"), after_imputation("as-given")
    (True, False, None)
    """
    problems: list[Problem] = []
    if stage not in STAGES:
        problems.append(Problem(what=f"{stage!r} is not a stage", where="stage", remedy=f"one of {', '.join(STAGES)}"))
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
