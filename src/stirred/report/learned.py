"""What could be learned: the section of a report, and the figures of the theory drawn as files of their own."""

from __future__ import annotations

import json
from typing import Any

from stirred.inference.figures import Figure
from stirred.inference.learned import Learned, what_could_be_learned
from stirred.report.charts import COLOURS, GREY, drawn
from stirred.report.page import bullets, folded, paragraph, section, table
from stirred.spec.specification import Specification


def learned_section(specification: Specification) -> str:
    """Return what could be learned from the release, read off its specification alone."""
    if specification.budget.is_free:
        return ""
    found = what_could_be_learned(specification)
    last = paragraph("For the exact figures there is no limit: whatever can be computed from them can be learned.")
    return section("What could be learned", paragraph(_lead(found)), *_limits(found), last)


def _lead(found: Learned) -> str:
    if found.refused:
        return f"No limit can be stated: {found.refused}."
    tests_only = any(row.assured and row.posterior is None for row in found.rows)
    output = "" if tests_only else " and the most surprising output"
    return f"Read off the specification alone, for the worst possible test{output}."


def _limits(found: Learned) -> list[str]:
    if found.refused:
        return []
    rows = [[row.about, row.distance, row.words] for row in found.rows]
    limits = table(["about", "records apart", "at most"], rows, caption="Limits on what could be learned")
    return [limits, *([folded("How these limits are meant", bullets(found.notes))] if found.notes else [])]


def figure_svg(figure: Figure) -> str | None:
    """Return a figure of the theory as SVG that stands alone; None where it cannot be drawn."""
    curves = list(dict.fromkeys(row[1] for row in figure.rows))
    exact = [curve for curve in curves if curve.startswith("exact")]
    shown = [curve for curve in curves if curve not in exact]
    colours = [*(COLOURS[at % len(COLOURS)] for at in range(len(shown))), *[GREY] * len(exact)]
    dashed = ["prior", *shown[len(COLOURS) :]]
    counted = {curve: sum(row[1] == curve for row in figure.rows) for curve in curves}
    # The exact curves are one family: one grey entry names them all, and they lie under the others.
    ends = f"{exact[0]} to {exact[-1].rpartition(' ')[2]}" if exact else ""
    label = f"indexof(datum.label, 'exact') == 0 ? {json.dumps(ends)} : datum.label"
    encoding: dict[str, Any] = {
        "x": {"field": figure.x, "type": "quantitative"},
        "y": {"field": figure.y, "type": "quantitative", "scale": {"type": "log" if figure.logarithmic else "linear"}},
        "color": {"field": "curve", "type": "nominal", "title": None, "sort": None,
                  "scale": {"domain": [*shown, *exact], "range": colours},
                  "legend": {"values": [*shown, *exact[:1]], "labelLimit": 300, "labelExpr": label}},
        "strokeDash": {"condition": {"test": f"indexof({json.dumps(dashed)}, datum.curve) >= 0", "value": [5, 4]},
                       "value": [1, 0]},
    }  # fmt: skip
    grey = "indexof(datum.curve, 'exact') == 0"
    single = {"test": " || ".join(f"datum.curve == {json.dumps(c)}" for c, n in counted.items() if n == 1) or "false"}
    specification: dict[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": figure.title,
        "background": "white",
        "data": {"values": [dict(zip(figure.header, row, strict=True)) for row in figure.rows]},
    }
    layers = {
        "width": 320 if figure.panel else 560,
        "height": 280,
        "layer": [
            *({"transform": [{"filter": f"!({single['test']}) && {which}"}],
               "mark": {"type": "line", "strokeWidth": thick}, "encoding": encoding}
              for which, thick in ((grey, 1), (f"!({grey})", 2))),
            {"transform": [{"filter": single["test"]}], "mark": {"type": "point", "size": 70, "filled": True},
             "encoding": encoding},
        ],
    }  # fmt: skip
    if figure.panel:
        specification |= {"facet": {"column": {"field": figure.panel, "type": "nominal"}}, "spec": layers}
    else:
        specification |= layers
    return drawn(json.dumps(specification))
