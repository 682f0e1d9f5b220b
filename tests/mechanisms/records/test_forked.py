"""A forked process is refused before it touches the data: there it could wait for ever for its parent's threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The parent has used polars, so its pool of threads exists, and the child has inherited its locks alone.
SCRIPT = """
import os, signal, sys
import polars as pl
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.randomness.entropy import Entropy, EntropyError

homes = pl.DataFrame({{
    "county": [f"c{{i % 40}}" for i in range(200_000)],
    "size": [i % 5 for i in range(200_000)],
    "tenure": [i * 7 // 3 % 2 for i in range(200_000)],
}})
mechanism = {name}(**{settings!r})
homes.group_by("county", "size").len().sort("len")
entropy = Entropy.from_os()
child = os.fork()
if child == 0:
    signal.alarm(120)  # ends a child that hangs
    try:
        mechanism.release(homes, entropy)
    except EntropyError:
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
NOISY = {
    "after": {"match": ["size"], "swap": ["county"], "rate": "1/2"}, "noise": "laplace", "epsilon": 1,
    "tables": [["county", "tenure"]],
}  # fmt: skip
SWAP = {"match": ["size"], "swap": ["county"], "hold": ["size", "tenure"], "rate": "1/2"}


@pytest.mark.parametrize(("name", "settings"), [("PermutationSwap", SWAP), ("NoisyTables", NOISY)])
def test_a_release_in_a_forked_process_is_refused_and_does_not_hang(name: str, settings: dict[str, object]) -> None:
    script = SCRIPT.format(name=name, settings=settings)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
