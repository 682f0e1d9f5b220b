"""Sphinx settings; ``make docs`` builds with warnings as errors."""

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from stirred import __version__

project = "stirred"
author = "The stirred developers"
copyright = f"{author}. Apache License 2.0"
release = version = __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
extensions = ["command_reference", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
# `--option` must stay as it is typed.
smartquotes = False
autodoc_typehints = "description"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["stirred.css"]
exclude_patterns = ["_static", "_extensions"]
html_title = f"stirred {release}"
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Pygments has no lexer for CSV: files shown in fences are plain text."""
    app.add_lexer("csv", TextLexer)
