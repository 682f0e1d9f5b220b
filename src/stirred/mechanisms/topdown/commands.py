"""The commands of TopDown: budgets, estimates, intervals and microdata from published measurements."""

from __future__ import annotations

from stirred.mechanisms.topdown import commands_estimate, commands_measure, commands_microdata

COMMANDS = (*commands_estimate.COMMANDS, *commands_microdata.COMMANDS, *commands_measure.COMMANDS)
