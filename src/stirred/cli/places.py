"""Every command by name: where it is, and how older names are spelled now. `stirred --help` loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stirred.mechanisms.groups import GROUPS


class CommandPlace(NamedTuple):
    """The module whose ``COMMANDS`` has a command, or all commands of a group, and what the list of commands says."""

    module: str
    help: str
    group: bool = False
    first: bool = True  # on the first page of the help, and not under "more"


def _group(module: str, help: str, *, first: bool = True) -> CommandPlace:
    return CommandPlace(module, help, group=True, first=first)


PLACES: Final[dict[str, CommandPlace]] = {
    "swap": CommandPlace("stirred.cli.swap", "Swap a household file and write the bundle of the release."),
    "plan": CommandPlace("stirred.cli.plan", "Show what a release would promise; nothing is released."),
    "advise": CommandPlace("stirred.cli.advise", "Propose the swap that fits your wishes."),
    "release": CommandPlace("stirred.cli.swap", "Carry out a plan, or finish one with --resume."),
    "publish": CommandPlace("stirred.cli.publish", "Check and scan a bundle, and copy its public part to a folder."),
    "check": CommandPlace("stirred.cli.publish", "Check a finished bundle from its files alone."),
    "report": CommandPlace("stirred.cli.publish", "Hand out an edition of a report."),
    "compare": CommandPlace("stirred.cli.compare", "Compare plans, releases or specifications, any number."),
    "risk": CommandPlace("stirred.cli.risk", "Show how exposed people are: who is unique, and on what."),
    "unswap": CommandPlace("stirred.cli.publish", "Correct a table for swapping, from public files alone."),
    "codebook": _group("stirred.cli.files:CODEBOOK", "Codebooks: what the columns of a confidential file mean."),
    "ledger": _group("stirred.cli.ledger", "The account of all releases from one dataset."),
    "spec": _group("stirred.cli.spec", "DP specifications: the five answers behind a budget."),
    "mechanism": _group("stirred.cli.mechanism", "The installed mechanisms, and the settings of each."),
    "audit": _group("stirred.cli.audit", "Check a promise exactly, or by repeated runs.", first=False),
    "attack": CommandPlace("stirred.cli.attack", "Reconstruct the persons of every area.", first=False),
    "limits": _group("stirred.cli.limits", "What anyone can learn: limits of tests and of posteriors.", first=False),
    **{name: _group(module, help, first=False) for name, (module, help) in GROUPS.items()},
    "synth": _group("stirred.cli.files:SYNTH", "Synthetic files to try things on: nobody's data.", first=False),
    "demo": _group("stirred.cli.files:DEMO", "Demonstrations on synthetic files.", first=False),
}

# What commands were called before, and what they are called now.
RENAMED: Final[dict[str, str]] = {
    "audit bundle": "check",
    "budget": "spec budget",
    "budget convert": "spec budget --rho2 NUMBER --delta NUMBER",
    "budget duplicates": "spec budget --rho2 NUMBER --copies NUMBER --delta NUMBER",
    "budget swap": "spec budget --stratum NUMBER --rate RATE",
    "ledger import": "ledger init LEDGER --from EXPORT.json",
    "limits required": "limits power --alpha SHARE --power SHARE",
    "prepare": "plan PLAN.toml --prepared FILE",
    "report compare": "compare BUNDLE BUNDLE",
    "report show": "report",
    "resume": "release --resume FOLDER",
    "schema": "plan --schema NAME",
    "spec compare": "compare",
    "spec explain": "spec show NAME --explain",
    "spec price": "compare NAME",
}
# The same for options of one command, and for those of a plan that `swap`, `plan` and `advise` had.
_ADVISE: Final = ("--advise", "--exact", "--undisturbed", "--at-most", "--changed", "--geography", "--cross")
_KEYS: Final = ("missing", "missing-as", "name", "post-imputation", "settings-from", "stage", "unit")
RENAMED_OPTIONS: Final[dict[str, str]] = {
    **{f"plan {name}": "`stirred advise`" for name in _ADVISE},
    **{f"{command} --{key}": f"`--set {key.replace('-', '_')}=...`" for command in ("swap", "plan", "advise")
       for key in _KEYS},
    "advise --match": "`--exact`: the match variables follow from the counts that must stay exact",
    "attack --address-error": "`--made address_error=SHARE`",
    "attack --age-error": "`--made age_error=SHARE`",
    "attack --coverage": "`--made coverage=SHARE`",
    "compare --family": "`stirred compare PLAN.toml`, with one plan",
    "plan --engine": "[engine] in the plan, or `stirred release --engine`",
    "plan --expect-persons": "a second `--expect-from`",
    "plan --master": "[engine] in the plan, or `stirred release --master`",
    "plan --pre-imputation": "`--set post_imputation=false`",
    "swap --dry-run": "`stirred plan`",
    "swap --format": "`--set format=csv`",
    "swap --pre-imputation": "`--set post_imputation=false`",
    "swap --purpose": "`--set purpose='...'`",
    "swap --verbose": "`stirred plan --verbose`",
}  # fmt: skip


def renamed(words: Sequence[str]) -> str | None:
    """Say how an old spelling is written now, if the first words of a command are one.

    >>> renamed(["ledger", "import", "export.json"])
    '`stirred ledger import` is now `stirred ledger init LEDGER --from EXPORT.json`'
    >>> renamed(["ledger", "show", "a.ledger"]) is None
    True
    """
    for count in (2, 1):
        if (old := " ".join(words[:count])) in RENAMED:
            return f"`stirred {old}` is now `stirred {RENAMED[old]}`"
    return None


def renamed_option(command: str, name: str) -> str | None:
    """Say how an option that a command does not know any more is written now.

    >>> renamed_option("swap", "--stage")
    '`stirred swap --stage` is now `--set stage=...`'
    """
    now = RENAMED_OPTIONS.get(f"{command} {name}")
    return now and f"`stirred {command} {name}` is now {now}"
