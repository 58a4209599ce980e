"""Imports go one way: privacy imports nothing of tailguard but argument checks, and heavy libraries only when used."""

import ast
from pathlib import Path

import pytest

import tailguard.privacy

FILES = sorted(Path(tailguard.privacy.__file__).parent.glob("*.py"))
HEAVY = {"opendp", "dp_accounting", "numba", "sklearn", "matplotlib", "pandas"}


def imported(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_privacy_stands_alone_and_is_light(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    ours = [name for name in imported(ast.walk(tree)) if name.split(".")[0] == "tailguard"]
    assert all(name.startswith(("tailguard.privacy", "tailguard._checks")) for name in ours)
    at_import = {name.split(".")[0] for name in imported(tree.body)}
    assert not at_import & HEAVY


def test_every_public_name_is_there():
    for name in tailguard.privacy.__all__:
        assert hasattr(tailguard.privacy, name)
