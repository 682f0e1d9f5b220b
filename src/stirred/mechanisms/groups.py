"""Groups of commands that mechanisms bring along, by name. It imports nothing: `stirred --help` lists them."""

from collections.abc import Mapping
from typing import Final

# group: (the module that has its COMMANDS, what the group is for)
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "ptable": (
        "stirred.mechanisms.tables.cellkey.design",
        "Perturbation tables for cell keys.",
    ),
    "derive": ("stirred.mechanisms.tables.derived", "Round or suppress released tables: it costs nothing."),
    "topdown": (
        "stirred.mechanisms.topdown.commands",
        "Estimates and records from noisy measurements.",
    ),
    "survey": ("stirred.survey.commands", "Surveys: settings, sampling designs, amplification, attackers."),
    "census": ("stirred.mechanisms.census_2020.account", "The 2020 US Census as one account."),
}
