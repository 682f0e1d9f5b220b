"""What the caller of a command names: a specification, factors between units, a premetric, an invariant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from stirred.cli.option_words import told_by_options
from stirred.cli.options import Names, Text, option
from stirred.spec.problems import wrong

if TYPE_CHECKING:
    from stirred.spec import Margin, OutputPremetric, Specification, UnitFactor
    from stirred.spec.catalogue import CatalogueEntry
    from stirred.spec.prices import Price


STATED: Final = "stated on the command line"
BUDGET: Final = "A value for a budget that is only a letter, such as 1."


class UnitOptions(BaseModel):
    """Options that relate units."""

    kappa: Names = option("One NEW unit changes at most K OLD records: household:person=1.", [], form="OLD:NEW=K")
    because: str = option("Why the factor holds; kept as an assumption.", "")

    def factors(self) -> list[UnitFactor]:
        """Return the factors between units that ``--kappa`` states."""
        return factors(self.kappa, self.because or STATED)


class CurrencyOptions(UnitOptions):
    """Options that say what a total is expressed in."""

    unit: Text = option("The common unit, where entries differ.", form="NAME")
    output: Text = option("Express the total in: pure, zcdp, approximate, gdp, tv, kl, hellinger or chi2.", form="NAME")
    delta: Text = option("delta; alone it means --output approximate.", form="NUMBER")

    def premetric(self) -> OutputPremetric | None:
        """Return the output premetric that the options name, if any."""
        name = self.output or ("approximate" if self.delta is not None else None)
        return None if name is None else output_premetric(name, delta=self.delta)


def read(name: str, *, budget: str | None = None) -> CatalogueEntry:
    """Return a catalogue entry, or a file as one; a letter gets the value of ``--budget``."""
    from dataclasses import replace

    from stirred.release.bundle import identified
    from stirred.spec import catalogue
    from stirred.spec.document import from_json, from_toml

    path = folder = Path(name)
    if path.is_dir():  # a bundle, or its public folder
        inside = [path / "specification.json", path / "public" / "specification.json"]
        found = next((place for place in inside if place.is_file()), None)
        if found is None and name not in catalogue.names():
            raise wrong(
                "this folder holds no specification.json", where=name or "NAME", remedy="name a bundle or a file"
            )
        path, name = (found, str(found)) if found is not None else (path, name)
    if path.suffix in (".json", ".toml") or "/" in name or path.is_file():
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise wrong("this is not text in UTF-8", where=name, remedy="save the file as UTF-8") from None
        except OSError as error:
            reason = error.strerror
            raise wrong(
                f"cannot read the file: {reason}", where=name, remedy="check the path and its permissions"
            ) from None
        specification = (from_toml if path.suffix == ".toml" else from_json)(text, source=name)
        entry = catalogue.CatalogueEntry(name=name, title=path.stem, source="", notes=(), specification=specification)
        entry = replace(entry, specification=identified(folder, specification))
    else:
        entry = catalogue.load(name)
    if budget is not None:
        if not entry.specification.budget.is_free:
            raise wrong(
                f"{name} has a budget already: {entry.specification.budget_text}",
                where="--budget",
                remedy="leave --budget out; it is for definitions whose budget is a letter",
            )
        with told_by_options():
            entry = replace(entry, specification=entry.specification.with_budget(budget))
    return entry


def read_two(first: str, second: str, *, budget: str | None) -> tuple[CatalogueEntry, CatalogueEntry]:
    """Return two specifications; ``--budget`` gives the value of each budget that is a letter."""
    a, b = read(first), read(second)
    if budget is None:
        return a, b
    if not (a.specification.budget.is_free or b.specification.budget.is_free):
        read(first, budget=budget)  # refuses: nothing is left to choose
    return (
        read(first, budget=budget) if a.specification.budget.is_free else a,
        read(second, budget=budget) if b.specification.budget.is_free else b,
    )


def counted(texts: list[str] | None) -> dict[str, int]:
    """Return how many values each level or variable has, as ``--count`` states."""
    stated = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not value.strip().isdecimal():
            raise wrong(f"{text!r} is not NAME=NUMBER", where="--count", remedy="write such as state=51")
        stated[name.strip()] = int(value)
    return stated


def price_facts(price: Price) -> dict[str, Any]:
    """Return the price of an invariant for JSON, its numbers rounded up."""
    from stirred.spec.document import number_out

    losses = {name: getattr(price, name) for name in ("rho2", "epsilon")}
    return {
        "invariant": str(price.invariant),
        **{name: None if value is None else number_out(value) for name, value in losses.items()},
        "counts": price.counts,
        "beta": str(price.beta),
        "moved": None if price.moved is None else str(price.moved),
        "unchanged_at_budget": price.unchanged,
        "missing": price.missing,
    }


def factors(texts: list[str] | None, because: str) -> list[UnitFactor]:
    """Return the factors between units that ``--kappa`` states."""
    from stirred.spec import UnitFactor
    from stirred.spec.given_numbers import fraction

    stated = []
    for text in texts or ():
        units, equals, value = text.partition("=")
        old, colon, new = units.partition(":")
        if not (equals and colon and old.strip() and new.strip()):
            raise wrong(f"{text!r} is not OLD:NEW=K", where="--kappa", remedy="write such as household:person=1")
        factor = fraction(value, where="--kappa")
        if factor < 1:
            raise wrong(
                f"{value.strip()} is below 1, but a change of one {new.strip()} changes at least one record",
                where="--kappa",
                remedy=f"write the largest number of {old.strip()} records that one {new.strip()} changes, 1 or more",
            )
        if old.strip() == new.strip():
            raise wrong(f"{text!r} names one unit twice", where="--kappa", remedy="name two different units")
        stated.append(UnitFactor(old=old.strip(), new=new.strip(), factor=factor, because=because))
    return stated


# Nothing is converted to w1: it is known here to be refused with the reason.
_SIMPLE: Final = {"pure": "D_Mult", "zcdp": "D_NoR", "gdp": "D_GDP", "tv": "D_TV", "kl": "D_KL", "hellinger": "D_H",
                  "chi2": "D_chi2", "w1": "D_W1"}  # fmt: skip
_OUTPUTS: Final = ("pure", "zcdp", "approximate", "gdp", "renyi", "tv", "kl", "hellinger", "chi2")


def output_premetric(
    text: str, *, delta: str | None, order: str | None = None, takes_order: bool = False
) -> OutputPremetric:
    """Return the output premetric a word names; Rényi's only where an order can be told."""
    from stirred.spec import OutputPremetric, approximate
    from stirred.spec.given_numbers import fraction

    key = text.lower()
    for word, name in _SIMPLE.items():
        if key in (word, name.lower()):
            return OutputPremetric(name=name)
    if key in ("approximate", "d_mult^delta"):
        if delta is None:
            raise wrong("approximate DP needs a delta", where="--delta", remedy="write such as --delta 1e-10")
        with told_by_options():
            return approximate(delta)
    if key in ("renyi", "d_renyi") and takes_order:
        if order is None:
            raise wrong("Rényi DP needs an order", where="--order", remedy="write such as --order 2")
        with told_by_options():
            return OutputPremetric(name="D_Renyi", order=fraction(order, where="order"))
    if key in ("f-dp", "trade-off", "d_tr"):
        what = "a trade-off curve has corners, which no option takes"
        raise wrong(what, where="--output", remedy="use `change_output(..., to=trade_off(curve))` in Python")
    names = [name for name in _OUTPUTS if name != "renyi" or takes_order]
    raise wrong(f"{text!r} is not an output premetric", where="--output", remedy=f"one of {', '.join(names)}")


def invariant(text: str, specification: Specification) -> Margin:
    """Read 'household: size x tenure @ county', checking names against those the specification knows."""
    from difflib import get_close_matches

    from stirred.spec import Margin
    from stirred.spec.problems import placed

    counted, _, level = (part.strip() for part in text.partition("@"))
    of, _, names = (part.strip() for part in counted.partition(":"))
    variables = [name.strip() for name in names.split(" x ")] if names else []
    if "@" in level or not all(variables) or any(v.endswith(" x") or v == "x" for v in variables):
        raise wrong(
            f"{text!r} cannot be read", where="--refine", remedy="write such as 'household: size x tenure @ county'"
        )
    multiverse = specification.multiverse
    margins = [i for i in multiverse.invariants if isinstance(i, Margin)]
    records = {*specification.domain.record_types, specification.input_premetric.unit, *(m.of for m in margins)}
    levels = {level for hierarchy in multiverse.hierarchies for level in hierarchy.levels}
    for given, known, what in ((of, records, "kind of record"), (level, levels, "level")):
        if given and known and given not in known:
            near = get_close_matches(given, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            remedy = f"{hint}There are: {', '.join(sorted(known))}"
            raise wrong(f"there is no {what} called {given!r} here", where="--refine", remedy=remedy)
    with placed("--refine"):
        return Margin(of=of, variables=tuple(variables), level=level or None)
