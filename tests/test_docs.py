"""The pages of the documentation: each can be found, links lead somewhere, and the reference leaves nothing out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_structure import PUBLIC

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md")])
REFERENCE = {page: page.read_text(encoding="utf-8") for page in DOCS.glob("api/*.md")}


def links(page: Path) -> Iterator[Path]:
    """Files that a page links to, inside the repository."""
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"https?:", target):
            yield (page.parent / target).resolve()


def reachable(page: Path) -> set[Path]:
    """Pages that can be reached by clicking."""
    found, waiting = {page}, [page]
    while waiting:
        new = {target for target in links(waiting.pop()) if target.suffix == ".md" and target.is_file()} - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    """To files, not folders: the built site can offer a file, but has no listing of a folder."""
    for target in links(page):
        assert target.is_file(), target.relative_to(ROOT)


def test_every_page_is_in_the_contents_of_the_site_once():
    listed = re.findall(r"^(\w[\w/-]*)$", (DOCS / "site" / "contents.md").read_text(encoding="utf-8"), re.MULTILINE)
    others = ["SECURITY", "CONTRIBUTING", "CHANGELOG"]
    assert sorted(listed) == sorted([str(page.relative_to(ROOT).with_suffix("").as_posix()) for page in PAGES] + others)


def test_every_guide_can_be_reached_from_the_readme():
    assert set(DOCS.glob("*.md")) - reachable(ROOT / "README.md") == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference_once(name):
    kind = r"\.\. auto(?:class|function|exception):: "
    short = name.rpartition(".")[2]
    entries = [page.stem for page, text in REFERENCE.items() if re.search(rf"^{kind}{short}$", text, re.MULTILINE)]
    # Two modules may have one name each: a Plan of the loop, and one of what to expect.
    namesakes = [other for other in PUBLIC if other.rpartition(".")[2] == short]
    assert len(entries) == len(namesakes), entries
