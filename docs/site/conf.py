"""The documentation site: `make docs` builds it.

The source folder is the repository itself, so a link between two Markdown files means the same here as on the site that
hosts the code, and the README is the front page as it is. A link to a file that is no page offers that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import tailguard

HERE = Path(__file__).parent

project = "tailguard"
author = "The tailguard developers"
project_copyright = author
version = release = tailguard.__version__

root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/api/*.md"]
# Folders that need not be searched for pages.
exclude_patterns = [".*", "build", "src", "tests", "benchmarks", "examples", "docs/site"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4

# Types are in the docstrings, in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
numpydoc_show_class_members = False
default_role = "py:obj"
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "tailguard"
html_math_renderer = "mathml"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["."]
# A folder is opened at its index, which leads to the front page.
html_additional_pages = {"index": "index.html"}


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Hang the tree of pages on the README, where the hosting site need not show it."""
    if page == root_doc:
        source[0] += "\n" + (HERE / "contents.md").read_text(encoding="utf-8")


def find_short_name(app: Sphinx, env: Any, node: Any, text: nodes.TextElement) -> nodes.reference | None:
    """Link a name that a docstring leaves without its module, if just one thing is called that."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    name = "." + node["reftarget"].lstrip(".").removesuffix("()")
    found = {entry.node_id: entry for full, entry in domain.objects.items() if full.endswith(name)}
    if len(found) != 1:
        return None
    ((anchor, entry),) = found.items()
    target = app.builder.get_relative_uri(node["refdoc"], entry.docname) + "#" + anchor
    return nodes.reference("", "", text, internal=True, refuri=target)


def inline_formula(writer: Any, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers set themselves: no script, nothing fetched from elsewhere."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed_formula(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", add_contents)
    app.connect("missing-reference", find_short_name)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
