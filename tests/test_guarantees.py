"""The guarantees page names tests that exist, and names one for every mechanism."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / "guarantees.md", ROOT / "SECURITY.md"]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def named_tests(page: Path) -> list[tuple[str, str]]:
    return NAMED.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_named_in_a_page_exists(page):
    named = named_tests(page)
    assert named
    for file, name in named:
        assert (ROOT / file).is_file(), file
        if name:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in found, f"{file} has no {name}"
            assert name.startswith("test_")


def test_every_section_of_a_proof_names_a_test():
    text = PAGES[0].read_text(encoding="utf-8")
    proofs = text.split("## The proofs, one mechanism at a time")[1].split("## What is not promised")[0]
    sections = re.split(r"^##+ ", proofs, flags=re.MULTILINE)[1:]
    assert len(sections) >= 9
    for section in sections:
        assert any(name for _, name in NAMED.findall(section)), section.splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_test_is_named_in_another_way(page):
    """A name outside the form that is checked above would rot in silence."""
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"tests/[\w/]+\.py", text)) == len(named_tests(page))
    assert not re.search(r"`test_\w+`", text)
