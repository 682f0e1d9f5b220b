"""The contract: what a mechanism hands over to the rooms around it, and all that they know of it.

``release``, ``report``, ``audit``, ``utility``, ``inference`` and ``cli`` import this module and ``registry``, and no
mechanism's folder. They loop over what is declared here; sentences are made by the mechanism from its own data.

What you must write, and what you may say better than the default, is :class:`Mechanism`, below. What a mechanism may be
able to do besides (swap before tables, a rate that decides its loss) is in ``contract/abilities.py``, and commands of
its own in ``groups.py``. The values that pass through are in ``contract/settings.py``, ``plan.py``, ``release.py`` and
``shown.py``. Import all of them from here.

``stirred.mechanisms.plain`` opens with a whole mechanism in one screen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import polars as pl

from stirred.data.microdata import as_microdata, like
from stirred.data.problems import bad_plan
from stirred.data.public_tables import PublicTable, ReleasedTable
from stirred.engines.protocol import LOCAL, Engine, bad_engine
from stirred.mechanisms.contract.abilities import (
    FINE_COLUMNS,
    Array,
    Exchange,
    NumberMoved,
    RateLosses,
    RedrawLaw,
    RedrawnCounts,
    RedrawnStratum,
    StratumAudit,
    SwapCellLaw,
    SwapFamily,
)
from stirred.mechanisms.contract.plan import (
    REHEARSED,
    SAMPLED,
    UNSEARCHED,
    Fact,
    Plan,
    PlanOrigin,
    check_seeded,
    doubt_rows,
    exposed_doubts,
    for_rehearsal,
    for_sampling,
    judged_by_policy,
    plan_doubts,
    plan_exposure,
    settings_doubts,
)
from stirred.mechanisms.contract.release import (
    PERSONS,
    RECORDS,
    Check,
    Frames,
    Opening,
    Progress,
    PublicFile,
    Release,
    ReleasedColumns,
    Table,
    VerificationError,
    Workplace,
    Written,
    failed,
    not_done,
)
from stirred.mechanisms.contract.settings import (
    Names,
    Probability,
    Rate,
    ReleasedFile,
    Settings,
    TableFile,
    confidence_of,
)
from stirred.mechanisms.contract.shown import (
    Bars,
    Block,
    Curve,
    ExpectedError,
    Grid,
    Headline,
    Picture,
    Plot,
    Section,
    Tiles,
    TooLargeError,
    Typical,
)
from stirred.mechanisms.groups import Bullets, Command, FactRows, Outcome, OutputBlock, Title
from stirred.randomness.entropy import Entropy
from stirred.spec.doubts import Doubt, refuse_doubts, with_accepted
from stirred.spec.exact import Exact
from stirred.spec.shift_law import OutputLaw
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.data.bundle import BundleFiles, Findings
    from stirred.data.codebook import Codebook
    from stirred.data.microdata import Microdata


class Mechanism(ABC):
    """A data release mechanism with immutable settings. It never prints, and knows no ledger and no command line.

    First comes what only your mechanism knows. Everything after it has a default, which suits one that releases a
    single file of records: override what yours knows better, and nothing else.
    """

    name: ClassVar[str]  # in plans and on the command line
    title: ClassVar[str]  # what a report calls it, such as "permutation swapping"
    settings_model: ClassVar[type[Settings]]

    settings: Any  # one of the model: given as it is, or by keyword as a plan has them

    def __init__(self, settings: Any = None, **given: Any) -> None:
        if settings is None or given:
            from stirred.mechanisms.registry import settings_for

            # Not dict(settings): a setting may be called `keys`.
            settings = settings_for(type(self), {**dict(iter(settings or ())), **given}, keep_empty=True)
        object.__setattr__(self, "settings", settings)

    def __setattr__(self, name: str, value: Any) -> None:
        # A plan knows its mechanism by these; built-in mechanisms are frozen as a whole.
        if name == "settings":
            raise AttributeError("settings stay as they are: with_settings(...) returns a mechanism with others")
        object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Return in one sentence what is done."""

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self.draft(as_microdata(data), doubts=False)

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        """Return the plan, with all that speaks against a release; nothing random happens.

        Without ``doubts`` the file is not searched: the one doubt is then ``UNSEARCHED``, which refuses a release.
        """
        microdata = as_microdata(data)
        plan = replace(self.draft(microdata, doubts=doubts), origin=PlanOrigin(self, microdata))
        if doubts:
            found = dict.fromkeys((*settings_doubts(self.settings_from), *self.doubts(microdata, plan)))
            plan = replace(plan, doubts=tuple(found))
        return plan._sealed()

    @abstractmethod
    def draft(self, data: Microdata, *, doubts: bool) -> Any:
        """Return what is planned for a file, a ``Plan``; raise all problems with its columns.

        ``doubts`` says whether a mechanism that comes before is to be searched for its own.
        """

    def doubts(self, data: Microdata, plan: Any) -> Iterable[Doubt]:
        """Return what speaks against releasing a file with a plan: the search may look at every column."""
        return ()

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
        workplace: Workplace | None = None,
    ) -> Release:
        """Run the mechanism once, with randomness that has made no release before (``entropy.for_release()``).

        A doubt about protection refuses, until ``accept`` names it. ``plan`` is this mechanism's plan for the same
        data, where it was made before; any other is refused. One for sampling has no doubts to refuse, and draws with a
        seed alone.
        """
        Entropy.expected(entropy)
        microdata = as_microdata(data)
        plan = self.plan(microdata) if plan is None else plan
        if not isinstance(plan, Plan):
            problem = f"{plan!r:.60} is not a plan"
        else:
            problem = (fault := plan.fault(self, microdata)) and f"the plan {fault}"
        if problem:
            remedy = "give what mechanism.plan(data) returns for these data, or leave plan out"
            raise bad_plan(problem, where="plan", remedy=remedy)
        tested = entropy.seeded and plan.doubts == (SAMPLED,)
        accepted = () if tested else refuse_doubts(plan_doubts(plan), accept=accept)
        check_seeded(plan, seeded=entropy.seeded)
        entropy = entropy.for_release()
        promised = with_accepted(plan.specification, [each for each in accepted if each.name not in plan.accepted])
        promised = replace(promised, seeded=entropy.seeded)
        return self.make_release(Opening(microdata, plan, entropy, promised, like(data), workplace), progress)

    @abstractmethod
    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        """Draw once and return the release; nothing that can fail without the draw may wait until here."""

    @abstractmethod
    def law(self, dataset: Any) -> OutputLaw:
        """Return the exact law of the released object for a small dataset: slow, obvious code."""

    @abstractmethod
    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        """Return small universes on which the promise can be checked by enumeration."""

    @abstractmethod
    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise in one of these universes."""

    # ---- what has a default: facts about the kind

    # Whether the tables of a plan are counted from released records, or are what the mechanism itself releases.
    counts_tables: ClassVar[bool] = True
    # Whether the tables that it releases are its own, so that a plan names none.
    own_tables: ClassVar[bool] = False
    # Columns that its tables may have beside their variables and the count, such as the bounds of an interval.
    table_columns: ClassVar[tuple[str, ...]] = ()
    # Of a swap within strata, what all swaps of its kind have in common.
    family: ClassVar[SwapFamily | None] = None

    # ---- settings

    def with_settings(self, **changed: Any) -> Self:
        """Return the same mechanism with some settings changed."""
        return type(self)(self.settings, **changed)

    @property
    def unit(self) -> str:
        """Return what a record is."""
        return str(self.settings.unit)

    @property
    def settings_from(self) -> str | None:
        """Return on what the settings were based."""
        found: str | None = self.settings.settings_from
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and type(self) is type(other) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.dumped(exclude_defaults=True).items())
        return f"{type(self).__name__}({given})"

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        """Return the settings with what a codebook declares for them, so that manifest and ledger keep it."""
        return settings

    def with_codebook(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        """Return the mechanism with the values that a codebook declares for its cells."""
        return self

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variables whose declared values come from this codebook: a draft was read off the file."""
        return ()

    @property
    def coded_columns(self) -> Sequence[str]:
        """Return the columns in which a missing value may be a code of its own, where a plan says so."""
        return ()

    # ---- before another mechanism

    @property
    def exchange(self) -> Exchange | None:
        """Return which columns are exchanged within which strata, where the sizes of these alone decide the law."""
        return None

    # ---- around the draw

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:
        """Compile the kernels of the draw, and raise what would end it, before budget is spent.

        On a cluster: what workers do not see, or read otherwise than was planned.
        """

    def on(self, engine: Engine) -> Self:
        """Return the mechanism with the engine that its bulk work runs on; refuse one that it does not run on."""
        if engine.name == LOCAL:
            return self
        raise bad_engine(
            f"{self.name} does not run on {engine.name}",
            where="[engine] name",
            remedy=f"leave [engine] out, or write name = '{LOCAL}': it then runs on this machine",
        )

    def rehearsed_on(self, data: Microdata, plan: Any) -> Microdata | None:
        """Return the records from which the rehearsal of a release draws, with all columns of the file.

        None where a draw would take too long whatever the records; then the pages alone are rehearsed.
        """
        return data.excerpt(1_000)

    def premises(self, plan: Any) -> Mapping[str, str]:
        """Return checksums of what the draw is addressed by, so that an interrupted run repeats itself exactly."""
        return {}

    # ---- the files of a release

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> Sequence[PublicFile]:
        """Return the public files besides the plan's tables and the pages: by default the records.

        Without data and plan, all that the settings allow: `publish` holds a bundle to that, and believes no manifest.
        """
        return [PublicFile(name=RECORDS, kind="records", columns=released.households, words="the records")]

    def table_in_words(self, table: Table, data: Microdata, plan: Any) -> str:
        """Say what was done to a table, in a few words."""
        return "counted from the released records"

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Write what was drawn to ``internal/``, where the public files do not show it."""

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Compare the written files with the confidential input; raise ``failed(...)`` if anything differs.

        That the files are what was released, and the tables those of the files, is checked for every mechanism.
        """
        return []

    def verify_exact(self, data: Microdata, plan: Any, written: Written) -> list[Check]:
        """Count what is published exactly once more from the confidential input; raise if anything differs."""
        return []

    # ---- pages

    def conclusions(self, plan: Any) -> Sequence[str]:
        """Return what a reader may conclude from the files, for README.md."""
        return [f"What is disturbed: {plan.disturbed}."]

    def number_of_records(self, data: Microdata) -> int | None:
        """Return how many records a report says there are: published exactly, or None."""
        return data.households.height

    def headline(self, plan: Any) -> Headline:
        """Return the first two sentences of the report."""
        return Headline(unchanged=f"Published exactly: {plan.unchanged}.", disturbed=f"Disturbed: {plan.disturbed}.")

    def typical_errors(self, plan: Any, corrected: Mapping[str, pl.DataFrame]) -> Sequence[Typical]:
        """Return how far off published counts are, where the law says it: the first is shown on the first screen.

        ``corrected`` is what ``corrected`` found.
        """
        return ()

    def sections(self, plan: Any) -> Sequence[Section]:
        """Return what the report shows beyond the common pages."""
        return ()

    def shown(self, plan: Any, public: Frames) -> Sequence[Section]:
        """Return what both editions show of the published files, from these and public facts alone."""
        return ()

    def inside(self, plan: Any, release: Release) -> Sequence[Section]:
        """Return what the internal edition alone shows first: how far a release is from the confidential file."""
        return ()

    def reading_tables(self, plan: Any) -> Sequence[str]:
        """Return what a reader of the tables must know."""
        return ["Counted from the released records; each costs nothing beyond the release itself (post-processing)."]

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the variables that are disturbed together, such as the geography: accuracy is shown by them.

        Released records are grouped by them; inside the groups their order is random.
        """
        return ()

    # ---- accuracy, before and after

    def rate_losses(self, plan: Any) -> RateLosses | None:
        """Return how the loss for a file follows from a rate; None where no rate changes it."""
        return None

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the settings in a few words; ``epsilon`` is the loss that they have for a file."""
        return f"epsilon {epsilon.shown()}"

    def areas_changed(self, plan: Any) -> pl.DataFrame | None:
        """Return for each area its ``records`` and the ``share_changed`` to expect; None where that is protected."""
        return None

    @property
    def no_closed_form(self) -> str:
        """Say why errors of tables cannot be computed beforehand; empty where they can."""
        return "the errors of this mechanism have no closed form"

    def expected_error(
        self,
        records: pl.DataFrame | pl.LazyFrame,
        *,
        variables: Sequence[str],
        source: str,
        persons: pl.DataFrame | pl.LazyFrame | None = None,
        key: str | None = None,
    ) -> ExpectedError:
        """Return the error to expect in a table of ``variables``; refuse where there is no closed form.

        ``source`` says where the records come from: ``this-data``, the file of the release; ``other-data``; or
        ``margins``, where only what is published exactly is used. ``persons`` are linked to the records by ``key``.
        """
        what = self.no_closed_form or "the errors of a swap follow from its law, which stirred.inference knows"
        remedy = "call expected_error of stirred.inference.swap_moments, or leave the expected error out"
        raise bad_plan(what, where="mechanism", remedy=remedy)

    @property
    def cell_law(self) -> SwapCellLaw | None:
        """Return how it treats the cells of tables, if it swaps and they have closed forms: predicted and corrected."""
        return None

    # ---- audits

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Check what this mechanism's public files show, and add checks, problems and what cannot be checked.

        Checksums, pages, marks of a test run, the order of rows and tables counted from records are checked for every
        mechanism.
        """
        self.audit_unstated(bundle, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Check what public files show where they do not state all settings of the mechanism."""
        found.unchecked.append("the budget, computed anew: this mechanism has no such check")
