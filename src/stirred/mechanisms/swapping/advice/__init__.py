"""Which match and swap variables, and which member, fit a file and the wishes of its custodian: an ``Adviser``."""

from stirred.mechanisms.swapping.advice.candidates import CHOOSING, choices
from stirred.mechanisms.swapping.advice.members import relatives, stronger
from stirred.mechanisms.swapping.advice.propose import advise

choosing = CHOOSING

__all__ = ["advise", "choices", "choosing", "relatives", "stronger"]
