"""Settings: where the promise starts in the survey pipeline, and which earlier stage it holds fixed (Table 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stirred.spec.problems import Problem, SpecificationError

STAGES: Final = ("population", "frame", "sample", "responding")
DESIGN_VARIABLES: Final = "frame-variables"
_EARLIER: Final = ((s, i) for k, s in enumerate(STAGES) for i in (None, *STAGES[:k]))
# The ten of Table 6.1 in its order, and the eleventh: the frame with its own variables held fixed.
PAIRS: Final[tuple[tuple[str, str | None], ...]] = (*_EARLIER, ("frame", DESIGN_VARIABLES))
_DATASET: Final = {
    "population": "a population with what the survey would ask of everybody in it",
    "frame": "an augmented frame: the frame with what the survey would ask of every unit on it",
    "sample": "a sample as drawn, with what its units would answer",
    "responding": "the records of the units that responded",
}
_ADVICE: Final = {
    1: "avoid: the frame adds little amplification, its rate is unknown, and weights vary",
    2: "rarely pays: weights vary with the frame, and where they do sampling amplifies nothing",
    3: "rarely pays: weights vary with the frame, and where they do sampling amplifies nothing",
    4: "weights vary: prefer the frame as invariant",
    5: "weights vary: prefer the frame as invariant",
    6: "preferred where somebody may know who was sampled: design weights are fixed",
    7: "weights vary and nothing amplifies: if you start at the responses, hold the frame fixed",
    8: "weights vary and nothing amplifies: if you start at the responses, hold the frame fixed",
    9: "the better choice among those that start at the responses",
    10: "not advised: a fixed sample may leave few possible values for a record",
    11: "preferred where membership of the sample is secret: weights are fixed, sampling amplifies, and the design may "
    "be published",
}


class InvalidSetting(SpecificationError):  # noqa: N818 (the name is the contract)
    """A start or an invariant that is not a stage, or not before the start."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the promise starts, and the latest stage before it that is held fixed, with all stages before that.

    >>> Setting("sample", "frame").weights_fixed, Setting("frame", "frame-variables").number
    (True, 11)
    """

    start: str
    invariant: str | None = None

    def __post_init__(self) -> None:
        choices: tuple[str, ...] = STAGES
        if self.start not in STAGES:
            what, where = f"{self.start!r} is not a stage", "start"
        elif (self.start, self.invariant) not in PAIRS:
            choices = tuple(i or "none" for s, i in PAIRS if s == self.start)
            what, where = f"{self.invariant!r} cannot be held fixed before {self.start!r}", "invariant"
        else:
            return
        raise InvalidSetting([Problem(what=what, where=where, remedy=f"one of {', '.join(choices)}")])

    @property
    def number(self) -> int:
        """Return the number of the setting: 1 to 10 as in Table 6.1, and 11."""
        return PAIRS.index((self.start, self.invariant)) + 1

    @property
    def domain(self) -> str:
        """Say what a dataset is."""
        return _DATASET[self.start]

    @property
    def multiverse(self) -> str:
        """Say which datasets are compared."""
        if self.invariant is None:
            return "all datasets"
        if self.invariant == DESIGN_VARIABLES:
            return "frames with the same units and the same frame (design) variables"
        return f"datasets that one and the same {self.invariant} can give"

    @property
    def weights_fixed(self) -> bool:
        """Say whether design weights are the same in all compared datasets; adjusted weights never are."""
        return self.invariant in ("frame", "sample", DESIGN_VARIABLES)

    @property
    def amplifiers(self) -> tuple[str, ...]:
        """Return the random steps after the start: each can amplify, and only sampling has known rates."""
        return ("frame construction", "sampling", "nonresponse")[STAGES.index(self.start) :]

    @property
    def protects(self) -> str:
        """Say whose record is protected."""
        who = {"population": "everybody in the population", "frame": "every unit of the frame, sampled or not",
               "sample": "every sampled unit", "responding": "every unit that responded"}[self.start]  # fmt: skip
        kept = {DESIGN_VARIABLES: ", but not its frame variables and not that it is on the frame"}
        return f"the record of {who}{kept.get(self.invariant or '', '')}"

    @property
    def public(self) -> tuple[str, ...]:
        """List what is assumed to be public, or not to be protected."""
        if self.invariant == DESIGN_VARIABLES:
            return ("who is on the frame", "the frame variables", "the design, and so the design weights")
        fixed = () if self.invariant is None else STAGES[: STAGES.index(self.invariant) + 1]
        return tuple(f"the {stage}, as far as it limits what a record can be" for stage in fixed)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """List attackers before whom an amplified loss does not hold."""
        late = "sampling" in self.amplifiers
        return ("nosy neighbour (knows who was sampled)", "journalist (any sampled record)") if late else ()

    @property
    def advice(self) -> str:
        """Say when to choose it (section 6.6)."""
        return _ADVICE[self.number]


ELEVENTH: Final = Setting("frame", DESIGN_VARIABLES)


def all_settings() -> tuple[Setting, ...]:
    """Return the eleven settings in their order.

    >>> len(all_settings()), sum(setting.weights_fixed for setting in all_settings())
    (11, 4)
    """
    return tuple(Setting(start, invariant) for start, invariant in PAIRS)
