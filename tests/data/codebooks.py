"""Codebooks as files, written as drafts are."""

from __future__ import annotations

from collections.abc import Iterator

from stirred.data.codebook import Codebook
from stirred.data.codebook_file import entry_toml, hierarchy_toml, link_toml, quoted, variable_toml


def as_toml(codebook: Codebook) -> str:
    """The codebook as a file."""
    return "\n".join(_sections(codebook))


def _sections(codebook: Codebook) -> Iterator[str]:
    yield f"[codebook]\ntitle = {quoted(codebook.title)}\n"
    for variable in codebook.variables:
        yield variable_toml(variable)
    for hierarchy in codebook.hierarchies:
        yield hierarchy_toml(hierarchy)
    for tree in codebook.trees:
        yield entry_toml(
            "hierarchies", name=tree.name, variable=tree.variable, hrc=tree.hrc, geographic=tree.geographic
        )
    if codebook.hid is not None or codebook.id:
        yield link_toml(codebook.hid, codebook.id)
    for zero in codebook.structural_zeros:
        yield entry_toml("structural_zeros", name=zero.name, file=zero.file, when=zero.when)
