"""Options of `swap` and `plan`: what may be told on the command line instead of in a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import SOURCE, needed

if TYPE_CHECKING:
    from fractions import Fraction

    from stirred.release.plan_file import Planned

MEMBERS = ("permutation", "conditioned", "mallows", "shuffle", "two-stage", "metric", "gibbs", "response", "noisy")


def member(name: str) -> str:
    """Return the short name of a member of the family; "-swap" may follow it, in any case of letters.

    >>> member("Two-Stage-Swap"), member("mallows")
    ('two-stage', 'mallows')
    """
    short = name.strip().lower().replace("_", "-").replace(" ", "-").removesuffix("-swap")
    if short in MEMBERS:
        return short
    from stirred.data.problems import bad_plan
    from stirred.data.spelling import meant

    what = f"there is no swap called '{name}'"
    hint = meant(short, MEMBERS)
    there = f"{'There are' if hint else 'write one of'} {', '.join(MEMBERS)}"
    raise bad_plan(what, where="--mechanism", remedy=hint + there)


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The household file: CSV, Parquet or a folder of parts, Arrow, a table of a database (FILE.sqlite#TABLE, "
        "FILE.duckdb#TABLE), SPSS, Stata or SAS.",
    ),
]
Match = Annotated[list[str] | None, typer.Option("--match", metavar="COLUMN", help="Swap only between records equal on this variable; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Swap = Annotated[list[str] | None, typer.Option("--swap", metavar="COLUMN", help="Variable that is exchanged, such as the geography; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Hold = Annotated[list[str] | None, typer.Option("--hold", metavar="COLUMN", help="Other variables to release (default: all); unnamed ones are dropped.")]  # fmt: skip  # noqa: E501
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help="Swap rate, exactly: 1/20, 0.05 or 5%.")]
Mechanism = Annotated[str, typer.Option("--mechanism", metavar="NAME", callback=member, help="Member of the swapping family: permutation, conditioned, mallows, shuffle, two-stage, metric, gibbs, response or noisy.")]  # fmt: skip  # noqa: E501
FineMatch = Annotated[list[str] | None, typer.Option("--fine-match", metavar="COLUMN", help="For the two-stage swap: further variables that the second stage matches on.")]  # fmt: skip  # noqa: E501
FineRate = Annotated[
    str | None, typer.Option("--fine-rate", metavar="RATE", help="For the two-stage swap: rate of the second stage.")
]
Distances = Annotated[list[str] | None, typer.Option("--distances", metavar="FILE|COLUMN", help="For the metric swap: a file of distances (from, to, distance), or swap variables as levels, from the finest to the coarsest.")]  # fmt: skip  # noqa: E501
Weights = Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="For the Gibbs swap: a file of weights (from, to, weight).")]  # fmt: skip  # noqa: E501
NoiseEpsilon = Annotated[
    str | None,
    typer.Option(
        "--noise-epsilon",
        metavar="NUMBER",
        help="For the noisy swap: loss of the noise alone, for all tables together.",
    ),
]
Respond = Annotated[str | None, typer.Option("--respond", metavar="COLUMN", help="For the response swap: the variable that gets a randomised response before the swap.")]  # fmt: skip  # noqa: E501
DeclaredValues = Annotated[list[str] | None, typer.Option("--values", metavar="VALUE", help="For the response swap: every value that this variable may have; default the codebook's.")]  # fmt: skip  # noqa: E501
Change = Annotated[str | None, typer.Option("--change", metavar="PROBABILITY", help="For the response swap: how likely another value is, exactly: 1/10.")]  # fmt: skip  # noqa: E501
RedrawLaw = Annotated[
    str | None,
    typer.Option(
        "--redraw-law",
        metavar="NAME",
        help="For the conditioned swap: redraw from a uniform (default) or a proportional law.",
    ),
]
Id = Annotated[list[str] | None, typer.Option("--id", metavar="COLUMN", help="Identifier column: never released.")]
Persons = Annotated[
    Path | None, typer.Option("--persons", metavar="FILE", help="File of the persons in the households.")
]
DataName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="TEXT",
        help="What the specification calls the dataset; with a ledger its name for it, to say that an edited file is "
        "the same dataset.",
    ),
]
CodebookFile = Annotated[
    Path | None, typer.Option("--codebook", metavar="CODEBOOK.toml", help="Codebook to validate the files against.")
]
Hid = Annotated[
    str | None,
    typer.Option("--hid", metavar="COLUMN", help="Column linking persons to households; re-issued on release."),
]
Table = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Table to publish, its variables joined by ' x ', such as 'county x tenure'; repeat.",
    ),
]
Unit = Annotated[str, typer.Option("--unit", metavar="NAME", help="What a record is.")]
Format = Annotated[str, typer.Option("--format", metavar="NAME", help="Of the released data: parquet or csv.")]
Epsilon = Annotated[
    str | None,
    typer.Option(
        "--epsilon",
        metavar="NUMBER",
        help="Show which rates would reach this loss; for the Mallows and the metric swap, the loss itself.",
    ),
]
OwnEpsilon = Annotated[
    str | None,
    typer.Option(
        "--epsilon",
        metavar="NUMBER",
        help="For the Mallows and the metric swap: the loss. The others take a rate; `stirred plan --epsilon` shows "
        "which rates reach a loss.",
    ),
]
Exact = Annotated[list[str] | None, typer.Option("--exact", metavar="TABLE", help="Wish: counts that must stay exact, such as 'county x size'; repeat.")]  # fmt: skip  # noqa: E501
Nearly = Annotated[list[str] | None, typer.Option("--nearly", metavar="TABLE", help="Wish: counts that should stay nearly exact, without being published; repeat.")]  # fmt: skip  # noqa: E501
Undisturbed = Annotated[list[str] | None, typer.Option("--undisturbed", metavar="AREA", help="Wish: an area, a value of a swap variable, that should be left alone; repeat.")]  # fmt: skip  # noqa: E501
AtMost = Annotated[str | None, typer.Option("--at-most", metavar="SHARE", help="Of the records of such an area so many may change (default 10%).")]  # fmt: skip  # noqa: E501
Changed = Annotated[str | None, typer.Option("--changed", metavar="SHARE", help="Wish: at least this share of all records should get another swap value (default 5%).")]  # fmt: skip  # noqa: E501
Advise = Annotated[bool, typer.Option("--advise", help="Propose the member of the swapping family that fits the wishes; implied by any but --epsilon.")]  # fmt: skip  # noqa: E501
Write = Annotated[Path | None, typer.Option("--write", metavar="PLAN.toml", help="With wishes: write the proposal as a plan; must not exist.")]  # fmt: skip  # noqa: E501
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
SettingsFrom = Annotated[str | None, typer.Option("--settings-from", metavar="NAME", help="On what the settings were based: policy, invariants, other-data or this-data.")]  # fmt: skip  # noqa: E501
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="LEDGER", help="Ledger to account in: a file, or postgresql://user@host/database."
    ),
]
Purpose = Annotated[
    str,
    typer.Option(
        "--purpose",
        metavar="TEXT",
        help="What the release is for. Public: it stands in public/README.md, in the manifest and in the ledger.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="TEXT", help="FOR TESTS ONLY: reproducible randomness; the bundle is marked."),
]

# What a plan that is only shown has as its place.
NOWHERE = Path("not-written")


def names(values: list[str] | None) -> list[str]:
    """Return names that were given one by one, or separated by commas."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def has_rate(mechanism: str) -> bool:
    """Say whether a member of the family has a rate; for the others ``--epsilon`` is no target but a setting."""
    from stirred.mechanisms.swapping.family import FAMILY

    return "rate" in FAMILY[f"{mechanism}-swap"].needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `swap` and `plan` may be told on the command line instead of in a plan."""

    file: Path
    match: list[str] | None = None
    swap: list[str] | None = None
    rate: str | None = None
    hold: list[str] | None = None
    id: list[str] | None = None
    persons: Path | None = None
    hid: str | None = None
    name: str | None = None
    codebook: Path | None = None
    unit: str = "household"
    out: Path | None = None
    table: list[str] | None = None
    format_: str = "parquet"
    settings_from: str | None = None
    ledger: str | None = None
    purpose: str = ""
    mechanism: str = "permutation"
    redraw_law: str | None = None
    fine_match: list[str] | None = None
    fine_rate: str | None = None
    distances: list[str] | None = None
    weights: Path | None = None
    noise_epsilon: str | None = None
    respond: str | None = None
    values: list[str] | None = None
    change: str | None = None
    epsilon: str | None = None
    command: str = "swap"

    @classmethod
    def of(cls, given: Mapping[str, Any], **others: Any) -> Options:
        """Return the options among the arguments of a command; ``others`` override them."""
        own = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        if has_rate(own["mechanism"]):
            own["epsilon"] = None  # a target to be shown, and no setting
        return cls(**{**own, **others})

    @classmethod
    def named(cls, given: Mapping[str, Any], *, but: Sequence[str]) -> list[str]:
        """Return the options that were given, but for some: those that are not as they are by default."""
        others = [field for field in fields(cls) if field.name in given and field.name not in ("file", *but)]
        return [f"--{field.name.replace('_', '-')}" for field in others if given[field.name] not in (field.default, [])]

    def with_rate_for(self, epsilon: str | None) -> Options:
        """Return the options with the gentlest rate that reaches a target, where a target and no rate was given."""
        if self.rate or epsilon is None or not has_rate(self.mechanism):
            return self
        return replace(self, rate=str(self._rate_for(epsilon) or "1/2"))

    def _rate_for(self, epsilon: str) -> Fraction | None:
        """Return the gentlest rate that reaches a loss; None where nothing can be swapped."""
        from stirred.release.prepared import prepare
        from stirred.spec.given_numbers import loss

        prepared = prepare(replace(self, rate="1/2").planned())
        target = loss(epsilon, where="--epsilon")
        live = prepared.plan.strata.largest_live is not None
        return prepared.mechanism.rate_reaching(prepared.plan, target) if live else None

    def refuse_epsilon_beside_rate(self, epsilon: str | None) -> None:
        """Refuse a target that a member with a rate would not keep, and say which rate would."""
        if epsilon is None or not has_rate(self.mechanism):
            return
        from stirred.data.problems import bad_plan
        from stirred.spec.problems import StirredError

        plan = f"stirred plan {self.file} ... --epsilon {epsilon}"
        remedy = f"see which rates reach it with `{plan}`, and give one as --rate"
        with suppress(StirredError):  # other problems, or no rate reaches it: the plan says so
            rate = replace(self, out=NOWHERE, command="plan")._rate_for(epsilon)
            if rate is not None:
                remedy = f"--rate {float(100 * rate):.10g}% is the lowest that reaches it; {remedy}"
        raise bad_plan(
            f"the {self.mechanism} swap takes a rate, and its loss follows: {epsilon} would not be kept",
            where="--epsilon",
            remedy=remedy,
        )

    @property
    def _distances(self) -> str | list[str] | None:
        """Return a file by its ending, or else the levels."""
        given = names(self.distances)
        return given[0] if len(given) == 1 and Path(given[0]).suffix else given or None

    @property
    def _needs(self) -> list[str]:
        """Return the keys of a plan that this member cannot do without; a codebook may declare the values."""
        from stirred.mechanisms.swapping.family import FAMILY

        own = [key for key in FAMILY[f"{self.mechanism}-swap"].needs if key != "values" or self.codebook is None]
        return ["swap", *own, "out"]

    def planned(self) -> Planned:
        """Return the plan that the options amount to; refuse where one is wanting."""
        from stirred.data.problems import PlanError
        from stirred.mechanisms.swapping.family import unknown_settings
        from stirred.release.plan_file import planned
        from stirred.release.tables import parse_table

        settings: dict[str, Any] = {
            "rate": self.rate,
            "epsilon": self.epsilon,
            "redraw_law": self.redraw_law,
            "fine_match": names(self.fine_match),
            "fine_rate": self.fine_rate,
            "distances": self._distances,
            "weights": None if self.weights is None else str(self.weights),
            "noise_epsilon": self.noise_epsilon,
            "respond": self.respond,
            "values": names(self.values),
            "change": self.change,
        }
        given: dict[str, Any] = {key: getattr(self, "table" if key == "tables" else key) for key in self._needs}
        if missing := [key for key, value in given.items() if not value]:
            unknown = unknown_settings(f"{self.mechanism}-swap", settings)
            raise PlanError(
                [
                    *(needed(key, command=self.command) for key in missing),
                    *(problem.inside(f"{SOURCE} [mechanism]") for problem in unknown),
                ]
            )
        content: dict[str, Any] = {
            "data": {"households": str(self.file), "id": names(self.id)},
            "mechanism": {
                "name": f"{self.mechanism}-swap",
                "match": names(self.match),
                "swap": names(self.swap),
                **settings,
                "unit": self.unit,
            },
            "tables": [{"variables": parse_table(text)[1]} for text in self.table or ()],
            "release": {"out": str(self.out), "format": self.format_, "purpose": self.purpose, "ledger": self.ledger},
        }
        if self.settings_from is not None:
            content["mechanism"]["settings_from"] = self.settings_from
        if self.hold is not None:
            content["mechanism"]["hold"] = names(self.hold)
        for key in ("persons", "hid", "name", "codebook"):
            if (value := getattr(self, key)) is not None:
                content["data"][key] = str(value)
        return planned(content, source=SOURCE, folder=Path())
