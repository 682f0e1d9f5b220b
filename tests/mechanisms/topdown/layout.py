"""Trees written as others publish them, traps included."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Level, Tree
from stirred.mechanisms.topdown.solve.files import SolverOutcome, make
from stirred.mechanisms.topdown.solve.tree import Shards, SolveOptions


def _row(schema: Schema, code: str, query: MarginalQuery, values: Any, suffix: str) -> dict[str, Any]:
    kept = dict(zip(schema.names, query.kept, strict=True))
    return {
        "geocode": code,
        "query_name": query.name.removesuffix("_dpq") + suffix,
        **kept,
        "query_shape": list(query.shape),
        "value": [int(value) for value in values],
    }


def answer_rows(schema: Schema, level: Level, *, nothing: bool = False) -> list[dict[str, Any]]:
    """Return the rows of measurements of a level; with ``nothing`` also those without information."""
    rows = []
    for answers in level.answers:
        for code, values, variance in zip(level.geocodes, answers.values, answers.variance, strict=True):
            if np.isfinite(variance) or nothing:
                row = _row(schema, code, answers.query, values, "_dpq")
                rows.append({**row, "variance": float(variance)})
    return rows


def known_rows(schema: Schema, level: Level) -> list[dict[str, Any]]:
    """Return the rows of constraints of a level."""
    rows = []
    for known in level.known:
        for code, values, given in zip(level.geocodes, known.values, known.given, strict=True):
            if given:
                row = _row(schema, code, known.query, values, f"_{'elu'[('=', '>=', '<=').index(known.sign)]}_con")
                rows.append({**row, "sign": known.sign})
    return rows


def write_folders(tree: Tree, root: Path, *, seed: int = 0) -> None:
    """Write ``<Level>.parquet/{DPQuery,Constraint}/State=...``: widths differ, rows are mixed, columns are added."""
    rng = np.random.default_rng(seed)
    for level in tree.levels:
        for kind, rows in (
            ("DPQuery", answer_rows(tree.schema, level)),
            ("Constraint", known_rows(tree.schema, level)),
        ):
            parts: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                parts.setdefault(f"State={row['geocode'][:3]}" if row["geocode"] else "", []).append(row)
            for number, (name, own) in enumerate(parts.items()):
                folder = root / f"{level.name}.parquet" / kind / name
                folder.mkdir(parents=True)
                wide = pl.Int64 if number % 2 or kind == "Constraint" else pl.Int32
                frame = pl.DataFrame([own[place] for place in rng.permutation(len(own))])
                frame = frame.with_columns(
                    pl.col("value").cast(pl.List(wide)),
                    pl.col("query_shape").cast(pl.List(pl.Int16 if number % 2 else pl.Int64)),
                    plb=pl.lit("1/3"),
                    extra=pl.lit(number),
                )
                if "variance" in frame.columns:
                    frame = frame.with_columns(pl.col("variance").cast(pl.Float32))
                frame.write_parquet(folder / "part-00000.parquet")


def write_file(tree: Tree, path: Path) -> None:
    """Write one file with a column ``geolevel``, rows without information and constraints among the others."""
    rows = []
    for level in tree.levels:
        own = answer_rows(tree.schema, level, nothing=True) + known_rows(tree.schema, level)
        rows += [{"geolevel": level.name, **row} for row in own]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame.write_parquet(path)


def write_spine(tree: Tree, path: Path) -> None:
    """Write the parents of all areas."""
    rows = []
    for height, level in enumerate(tree.levels):
        above = tree.levels[max(0, height - 1)].geocodes
        rows += [
            {"geocode": code, "geolevel": level.name, "parent": above[parent] if height else None}
            for code, parent in zip(level.geocodes, level.parent, strict=True)
        ]
    pl.DataFrame(rows).write_csv(path)


def write_codebook(schema: Schema, path: Path) -> None:
    """Write a schema as a codebook, with a tree of codes beside it for each grouping."""
    text = ""
    for each in schema.attributes:
        codes = ", ".join(f'"{code}" = ""' for code in each.codes)
        text += f'[[variables]]\nname = "{each.name}"\nfile = "persons"\ntype = "code"\ncodes = {{ {codes} }}\n'
        for name, groups in each.groupings.items():
            parts = [[c for c, own in zip(each.codes, groups, strict=True) if own == g] for g in range(max(groups) + 1)]
            tree = "".join(f"group{n}\n" + "".join(f"@{code}\n" for code in own) for n, own in enumerate(parts))
            path.with_name(f"{name}.hrc").write_text(tree)
            text += (
                f'[[hierarchies]]\nname = "{name}"\nvariable = "{each.name}"\nhrc = "{name}.hrc"\ngeographic = false\n'
            )
    path.write_text(text)


def detailed(schema: Schema) -> MarginalQuery:
    """Return the query of all cells."""
    return schema.keeping([DETAILED] * len(schema.attributes))


def made_from(shards: Shards, options: SolveOptions, *, top: Tree | None = None) -> tuple[pl.DataFrame, SolverOutcome]:
    """Return the counts of all leaves as they are written, and what happened."""
    with TemporaryDirectory() as folder:
        outcome = make(shards, options, Path(folder), top=top, records=None)
        return pl.concat(map(pl.read_parquet, outcome.files)), outcome
