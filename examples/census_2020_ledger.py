"""The 2020 US Census as a ledger, and the 2010 design beside it: what all products promise together.

The ledger holds what was published: redistricting data (PL), the demographic file (DHC, whose 15.29
already contains PL), SafeTab-P, SafeTab-H and PHSafe, and products derived from TopDown's output. The
factor between household and person records is stated, as the paper takes it, and so is the number of
records one person's answers may stand in. The 2010 design swaps once and tabulates many times.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from pathlib import Path

from stirred.release.ledger import Ledger, Request, Total
from stirred.release.ledger.currency import Copies, Currency
from stirred.spec import UnitFactor, approximate, catalogue

DELTA = Fraction(1, 10**10)


def census_2020(url: str | Path) -> Ledger:
    """Return a new ledger with the releases of the 2020 Census."""
    ledger = Ledger.create(url, dataset="the 2020 Census Edited File")
    pl = add(ledger, "TopDown, redistricting data (PL)", "das-2020-topdown-pl")
    dhc = add(ledger, "TopDown, demographic and housing characteristics (DHC)", "das-2020-topdown", includes=[pl])
    add(ledger, "SafeTab-P, detailed DHC-A", "das-2020-safetab-p")
    add(ledger, "SafeTab-H, detailed DHC-B", "das-2020-safetab-h")
    add(ledger, "PHSafe, supplemental DHC", "das-2020-phsafe")
    for product in ("demographic profile", "privacy-protected microdata file", "noisy measurement files"):
        ledger.add(Request(mechanism=product, purpose="2020 Census", derived_from=[dhc]))
    return ledger


def census_2010(url: str | Path) -> Ledger:
    """Return a new ledger with the 2010 design: one swap, and many products of the swapped file."""
    ledger = Ledger.create(url, dataset="the 2010 Census Edited File")
    swap = add(ledger, "swapping", "psa-2010-4pct")
    for product in (
        "redistricting data",
        "summary file 1",
        "summary file 2",
        "demographic profile",
        "microdata sample",
    ):
        ledger.add(Request(mechanism=product, purpose="2010 Census", derived_from=[swap]))
    return ledger


def add(ledger: Ledger, mechanism: str, name: str, *, includes: list[str] | None = None) -> str:
    """Record a published specification and return the id of its entry."""
    published = catalogue.load(name)
    request = Request(
        mechanism=mechanism,
        specification=published.specification,
        purpose=published.title,
        parameters={"source": published.source},
        includes=includes or (),
    )
    return ledger.add(request).id


def people(*, kappa: int = 1, copies: int | None = None, delta: Fraction | None = None) -> Currency:
    """Return the currency of the paper: person records, ``kappa`` household records each, all of it stated."""
    households = UnitFactor(
        old="household",
        new="person",
        factor=kappa,
        because=f"a change of one person record changes at most {kappa} household record{'s' if kappa > 1 else ''}",
        keeps_total="there is one household record for each housing unit and occupied group quarters",
    )
    return Currency(
        unit="person",
        units=(households,),
        copies=None if copies is None else Copies(factor=copies, because=f"imputed at most into {copies} records"),
        output=None if delta is None else approximate(delta),
    )


def shown(total: Total) -> str:
    """Return the one specification of everything, or the parts side by side."""
    return " | ".join(part.specification.notation for part in total.parts)


def main() -> None:
    """Build both ledgers and print what each promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the two ledgers")
    out: Path = parser.parse_args().out
    if out.exists():
        parser.error(f"{out} exists already: name a new folder")
    out.mkdir(parents=True)
    census = census_2020(out / "census-2020.ledger")
    lines = [
        ("2020, no factor between units stated", census.total()),
        ("2020, one household record a person", census.total(people())),
        ("  as epsilon", census.total(people(delta=DELTA))),
        ("2020, people whose answers stand in two records", census.total(people(copies=2))),
        ("  as epsilon", census.total(people(copies=2, delta=DELTA))),
        ("2020, two household records a person", census.total(people(kappa=2))),
        ("  as epsilon", census.total(people(kappa=2, delta=DELTA))),
        ("2010, one swap and many products", census_2010(out / "census-2010.ledger").total()),
    ]
    for title, total in lines:
        sys.stdout.write(f"{title}: {shown(total)}\n")


if __name__ == "__main__":
    main()
