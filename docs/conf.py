"""Sphinx settings; ``make docs`` builds with warnings as errors."""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from stirred import __version__

project = "stirred"
author = "The stirred developers"
copyright = f"{author}. Apache License 2.0"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"

html_theme = "furo"
html_static_path = ["_static"]
exclude_patterns = ["_static"]
html_title = f"stirred {release}"
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Pygments has no lexer for CSV: files shown in fences are plain text."""
    app.add_lexer("csv", TextLexer)
