"""Texts that are nearly right, and bytes that are nothing: what careless hands and broken disks make of a file."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

TOKENS = [
    *(
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        '"',
        "'",
        "'''",
        '"""',
        "=",
        ".",
        ",",
        ":",
        "#",
        "\n",
        "\r",
        "\x00",
        "\\",
        "\\u0",
    ),
    *("true", "null", "nan", "inf", "-inf", "NaN", "-1", "0", "1e999", "1e-999", "9" * 40, "0.1", "1:2", "[a]", '""'),
    *(
        "1979-05-27",
        "07:32:00",
        '"1 2"',
        "é",
        "\ufeff",
        "\u202e",
        "𝟙",
        "rate = 2\n",
        '[data]\nx = "y"\n',
        "[[tables]]\n",
    ),
]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Draw a text a few edits away from the given one. No edit adds a slash, so that paths stay where they are."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 30)))
        lines = text.splitlines(keepends=True)
        match draw(st.sampled_from(["delete", "insert", "replace", "line twice", "line away", "cut"])):
            case "delete":
                text = text[:begin] + text[end:]
            case "insert":
                text = text[:begin] + draw(st.sampled_from(TOKENS)) + text[begin:]
            case "replace":
                text = text[:begin] + draw(st.sampled_from(TOKENS)) + text[end:]
            case "line twice" if lines:
                at = draw(st.integers(0, len(lines) - 1))
                text = "".join([*lines[: at + 1], *lines[at:]])
            case "line away" if lines:
                at = draw(st.integers(0, len(lines) - 1))
                text = "".join([*lines[:at], *lines[at + 1 :]])
            case "cut":
                text = text[:begin]
    return text


VALUES: list[Any] = [None, True, 0, -1, 10**40, 0.5, 1e308, "", "inf", "x", "1/0", "𝟙", [], [[]], {}, {"": 0}]


@st.composite
def mutated_json(draw: st.DrawFn, document: Any) -> str:
    """Draw a document in which a few values, anywhere, are gone, doubled or something else."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        here = document
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(here[key], dict | list) and here[key] and draw(st.booleans()):
                here = here[key]
                continue
            match draw(st.sampled_from(["other", "away", "another"])):
                case "other":
                    here[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
                case "away":
                    here.pop(key)
                case "another" if isinstance(here, dict):
                    here[draw(st.sampled_from(["x", "", "kind", "name"]))] = here[key]
                case "another":
                    here.append(here[key])
            break
    return json.dumps(document)
