"""Measured tables inside a page that people write: each between two comments with its name."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the two comments of a name; a page that lacks them gets them at its end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    if begin not in old or end not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n".lstrip()
    before, _, rest = old.partition(begin)
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")
