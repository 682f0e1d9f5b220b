"""Which match and swap variables, and which member, fit a file and the wishes of its custodian: an ``Adviser``."""

from stirred.mechanisms.advice.candidates import CHOOSING, choices
from stirred.mechanisms.advice.members import relatives, stronger
from stirred.mechanisms.advice.propose import advise

choosing = CHOOSING

__all__ = ["advise", "choices", "choosing", "relatives", "stronger"]
