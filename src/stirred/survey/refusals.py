"""Refusals of survey arithmetic, each under its own name and with a counterexample that can be run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stirred.spec.problems import ConversionRefusedError, Problem

if TYPE_CHECKING:
    from stirred.survey.counterexamples import Counterexample


class SurveyRefusal(ConversionRefusedError):  # noqa: N818 (the names are the contract)
    """A claim that would not hold; ``counterexamples`` show by how much, and can be run.

    >>> example = OrderFromRecords(()).counterexamples[0]
    >>> example.claim, round(example.loss, 6)  # claimed, and really lost: twice epsilon
    (0.5, 1.0)
    """

    @property
    def counterexamples(self) -> tuple[Counterexample, ...]:
        """Return what goes wrong, as numbers: a claim and the larger loss that it hides."""
        from stirred.survey.counterexamples import EXAMPLES

        return tuple(example for example in EXAMPLES if example.refusal == type(self).__name__)


class NoAmplification(SurveyRefusal):
    """Nothing random lies between the protected records and the sample, or everybody may know the sample."""


class IncompatibleRelation(SurveyRefusal):
    """The inner guarantee compares other samples than the design needs."""


class UnverifiedAmplification(SurveyRefusal):
    """A response or coverage rate that nobody knows is used as if it were known."""


class UnsupportedDesign(SurveyRefusal):
    """No formula is known for this design."""


class OrderFromRecords(SurveyRefusal):
    """A systematic sample from a list that is sorted by the protected records."""


class SizeTotalNotPublic(SurveyRefusal):
    """Probabilities proportional to size, where a record's own size changes everybody's probability."""


class AllocationFromData(SurveyRefusal):
    """Strata, clusters, or sample sizes in them, that depend on the records."""


class SharedSampleError(SurveyRefusal):
    """Amplified losses of one sample, or of dependent ones, added up."""


class WeightsNotFixed(SurveyRefusal):
    """Weights that change with the data, used as if they were fixed."""


class DataDependentSensitivity(SurveyRefusal):
    """A sensitivity read from the realised sample, which another sample would not have."""


class UnboundedValues(SurveyRefusal):
    """Values without public bounds: no noise is enough."""


class NotSeparable(SurveyRefusal):
    """Imputation that copies one record's answers into others, used as if each record stood for itself."""


class EmptyCell(SurveyRefusal):
    """A post-stratum that can lose its last member."""


def refusal(kind: type[SurveyRefusal], what: str, *, where: str, remedy: str, example: int = 0) -> SurveyRefusal:
    """Return (not raise) a refusal that tells its name and its counterexample."""
    shown = kind(()).counterexamples[example]
    return kind([Problem(what=f"{what} ({kind.__name__}). Counterexample: {shown.words}", where=where, remedy=remedy)])
