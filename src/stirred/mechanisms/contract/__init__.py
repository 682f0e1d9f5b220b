"""The parts of the contract, one reader's question each; import them from ``stirred.mechanisms.protocol``."""
