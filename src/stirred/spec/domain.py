"""Who is eligible for protection: the domain, the set of datasets a mechanism may be given."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from stirred.spec.problems import wrong

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The set of datasets that could have been the input, and at which stage of their life.

    ``columns`` are the columns it is about, where the file has further ones: two files that differ only in
    others are the same dataset here, and different ones for a release that uses those. ``datasets``
    optionally lists all datasets, for audits on small examples; it is no part of the domain's identity and
    is never written to a file.

    >>> Domain(name="CEF", dataset="a Census Edited File", stage="edited-file").stage_in_words
    'the file after coding, editing and imputation'
    """

    name: str
    dataset: str
    stage: str = "edited-file"
    record_types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
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
        """Return the domain of the whole file, all its columns and kinds of records."""
        return replace(self, columns=(), record_types=()) if self.columns or self.record_types else self

    @property
    def stage_in_words(self) -> str:
        """Return the stage in plain words; a stage of your own stands for itself."""
        return STAGES.get(self.stage, self.stage)
