"""The report: the same blocks as one self-contained HTML page and as a Markdown file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tailguard.reproduce.claims import Evidence, choices, claims, short
from tailguard.reproduce.plots import draw
from tailguard.reproduce.specs import Figure, Method, Panel, Size
from tailguard.reproduce.store import versions


@dataclass(frozen=True)
class Heading:
    """A heading."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Words; ``important`` ones are set apart."""

    text: str
    important: bool = False


@dataclass(frozen=True)
class Table:
    """A table; a cell of several lines is a tuple. ``folded`` ones open on a click."""

    header: tuple[str, ...]
    rows: tuple[tuple[str | tuple[str, ...], ...], ...]
    folded: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Picture:
    """A drawn figure; a PNG lies beside the SVG."""

    path: Path
    caption: str


Block = Heading | Paragraph | Table | Picture

SILENCES: tuple[tuple[str, str, str], ...] = (
    (
        "T",
        "100 steps for all methods of figures 1 to 4: one pass over n = 10⁵ rows in batches of 1000. The second line "
        "set takes 20.",
        "T halved and doubled: figure 6",
    ),
    ("distribution of x", "independent standard normal coordinates", "Student t with 3 degrees of freedom: figure 6"),
    ("w*", "a random direction of length 1, another for every seed", "length √10: figure 6"),
    ("penalty of ridge regression", "none: w* is the minimiser", "α = 0.01: figure 6"),
    ("constraint set W", "none: no projection", "a ball of radius 2: figure 6"),
    ("w⁰", "zero", "not measured: |w*| changes its distance from w*"),
    ("κ", "2, 10 and 50 (quick run: 2 and 50), around zero; the mean gradient lies within ±1", "figures 1 and 2"),
    (
        "“error” of figures 1, 3 and 4",
        "excess population risk; ridge in closed form, logistic as the mean over one fixed fresh sample of x with the "
        "known chance of each label, over the minimum on that sample",
        "–",
    ),
    (
        "sampling of mini-batches",
        "Poisson, expected size 1000, sum divided by 1000; noise by exact accounting for added or removed rows",
        "–",
    ),
    ("δ", "1/n, the constant in δ = O(1/n) taken as 1; the library refuses it by default", "–"),
    (
        "Adult: which rows",
        "30,000 of the 48,842 at random, 28,000 for training; another choice for every seed",
        "bands of figure 2",
    ),
    (
        "Adult: encoding",
        "14 columns, one per attribute, scaled by public round numbers (see load_adult), and a constant column",
        "one column per category, d = 109: figure 6",
    ),
    ("Adult: target of ridge regression", "the labels, −1 and +1", "–"),
    ("number of repetitions", "see the figures", "bands from best to worst"),
)


def write(
    figures: Sequence[Figure], evidence: Evidence, folder: Path, size: Size, skipped: Sequence[str] = ()
) -> list[Path]:
    """Draw the figures and write ``report.html`` and ``report.md``.

    Parameters
    ----------
    figures : sequence of Figure
        Those that were run.
    evidence : Evidence
        With their results.
    folder : Path
        Output folder.
    size : Size
        Of the run.
    skipped : sequence of str
        Sentences about what was not run and why.

    Returns
    -------
    list of Path
        The page and the Markdown file.
    """
    blocks = _blocks(figures, evidence, folder, size, skipped)
    page, text = folder / "report.html", folder / "report.md"
    page.write_text(_html(blocks), encoding="utf-8")
    text.write_text(_markdown(blocks, folder), encoding="utf-8")
    return [page, text]


TITLE = "Differentially private learning on heavy-tailed data: the paper's experiments, repeated"


def _blocks(
    figures: Sequence[Figure], evidence: Evidence, folder: Path, size: Size, skipped: Sequence[str]
) -> list[Block]:
    blocks: list[Block] = [
        Paragraph(
            "Every experiment of “On Differentially Private Stochastic Convex Optimization with Heavy-tailed Data” "
            "(Wang, Xiao, Devadas and Xu, 2020), run again by tailguard reproduce; every number on this page is "
            "computed from the results beside it."
        ),
        Paragraph(
            "All runs are seeded, so none of them is private: whoever knows a seed can take the noise away. “Private” "
            "below says what a method promises when it draws from the operating system. Algorithm 3 as printed "
            "promises nothing at all: its noise scale is not a smooth bound on the sensitivity.",
            important=True,
        ),
        *(Paragraph(sentence, important=True) for sentence in skipped),
        Heading("What the paper claims, and what was measured"),
        Paragraph(
            "Errors are medians of the final error over the seeds. “Comparable” means at most twice the excess risk, "
            "and on Adult at most a tenth more test risk, than without privacy; “sensitive to κ” means that the "
            "medians differ by more than a factor of two. Slopes have ± two standard errors. A bound “holds” if the "
            "error does not grow faster than it, which is all that an upper bound says; the theorems are asymptotic "
            "(theorem 8 asks for n of the order of d²/ε², up to constants it does not print), so one that fails here "
            "may hold for more rows."
        ),
        Table(
            ("claim", "where", "measured", "verdict"),
            tuple((row.claim, row.where, row.measured, row.verdict) for row in claims(evidence)),
            kind="claims",
        ),
    ]
    for figure in figures:
        blocks.append(Heading(f"Figure {figure.key}: {figure.title}"))
        for path in draw(figure, evidence, folder / "figures"):
            words = (
                " As in the paper's appendix, with bands from the best to the worst seed."
                if "bands" in path.stem
                else ""
            )
            blocks.append(Picture(path, figure.caption + words + _reading(figure)))
        blocks.append(_numbers(figure, evidence))
    blocks += [Heading("Settings"), *_settings(figures, size)]
    blocks += [
        Heading("Where the paper is silent"),
        Table(("what", "chosen here", "alternative measured"), SILENCES),
    ]
    rows = choices(evidence)
    if rows:
        methods = dict.fromkeys(label for row in rows for label, _ in row.factors)
        lines = []
        for row in rows:
            factors = dict(row.factors)
            cells = (f"× {short(factors[label])}" if label in factors else "–" for label in methods)
            lines.append((row.panel, row.label, *cells))
        words = "How much it matters: median final error with the alternative, over that with the choice made."
        blocks += [Paragraph(words), Table(("setting", "alternative", *methods), tuple(lines))]
    blocks += [
        Heading("Versions and seeds"),
        Table(("software", "version"), tuple(versions().items())),
        Table(
            ("figure", "seeds of data", "fingerprint of the spec"),
            tuple((figure.key, f"0 to {figure.seeds - 1}", figure.digest) for figure in figures),
        ),
        Paragraph(
            "The seed of a cell's noise is made from the cell itself and is in its Parquet file, with the spec and the "
            "versions."
        ),
    ]
    return blocks


def _reading(figure: Figure) -> str:
    if figure.panels[0].x != "iteration":
        return ""
    return (
        " The axis is broken: the upper part is Algorithm 3 where it is far above the rest. The second line set stops "
        "at its T = 20 and is drawn on as a dotted level; methods without iterations are levels; stochastic methods "
        "show the mean of the iterates so far."
    )


def _numbers(figure: Figure, evidence: Evidence) -> Table:
    """Median, best and worst final error of every method."""
    header = ["method", "promise"]
    columns: list[tuple[Panel, float]] = []
    for panel in figure.panels:
        places = panel.points if panel.x == "choice" else dict.fromkeys((panel.points[0], panel.points[-1]))
        for point in places:
            where = "" if panel.x == "iteration" else f", {panel.x} = {point.x:,.0f}"
            if panel.x == "choice":
                where = f", {' '.join(point.label.split())}"
            header.append(f"{panel.key} {panel.title}{where}")
            columns.append((panel, point.x))
    methods = {method.key: method for panel in figure.panels for method in panel.methods}
    rows = [
        (
            method.label,
            "private" if method.private else "none",
            *(_cell(evidence, *column, method.key) for column in columns),
        )
        for method in methods.values()
    ]
    return Table(tuple(header), tuple(rows), folded="Numbers: median final error (best to worst)", kind="numbers")


def _cell(evidence: Evidence, panel: Panel, x: float, method: str) -> str:
    if method not in {line.key for line in panel.methods}:
        return "–"
    errors = evidence.final(panel, method, x)
    return f"{short(float(np.median(errors)))} ({short(float(errors.min()))} to {short(float(errors.max()))})"


def _settings(figures: Sequence[Figure], size: Size) -> list[Block]:
    """Every method with its arguments, and the numbers that all share."""
    shared = (
        ("synthetic rows and columns", f"n = {size.n:,}, d = 10 unless the figure varies them"),
        ("noise of the linear model", "log-normal(μ = 1, σ = 1), centred"),
        ("noise of the binary model", "log-logistic(μ = 0.2, σ = 0.2), centred"),
        ("Adult", f"{size.adult:,} rows for training, {size.adult_test:,} for the test"),
        ("δ, v, δ′, m", "1/n, 5, 0.01, 5 % of the rows at each end"),
        ("steps", "Algorithm 3: 0.01; Algorithm 4 and RGD: 0.1; stochastic: 1/√t and the mean of the iterates"),
        ("fresh sample for logistic risk", f"{size.test:,} rows, the same for all"),
    )
    blocks: list[Block] = [Table(("what", "value"), shared)]
    seen: dict[tuple[object, ...], tuple[str | tuple[str, ...], ...]] = {}
    for figure in figures:
        for panel in figure.panels:
            source = panel.points[0].source
            for method in panel.points[0].methods:
                data = "Adult" if source.data == "adult" else "synthetic"
                row = (f"figure {figure.key}", f"{data}, {source.model}", method.label, _arguments(method))
                seen.setdefault(row, row)
    blocks.append(
        Table(
            ("figure", "data", "method", "arguments"), tuple(seen.values()), folded="All methods with their arguments"
        )
    )
    return blocks


def _arguments(method: Method) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in method.parameters)
    return f"{method.algorithm}({words})"


_CSS = """
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#1c1c1c;background:#fff;max-width:1280px;
margin:0 auto;padding:1.5rem 1.25rem 4rem}
h1{font-size:1.7rem;line-height:1.25;margin:.4rem 0 1rem}
h2{font-size:1.25rem;margin:2.6rem 0 .7rem;border-bottom:1px solid #ddd;padding-bottom:.25rem}
p{max-width:54rem}p.important{background:#fff6df;border-left:4px solid #E69F00;padding:.6rem .9rem}
table{border-collapse:collapse;font-size:.86rem;margin:.8rem 0}
th,td{text-align:left;vertical-align:top;padding:.4rem .7rem;
border-bottom:1px solid #e4e4e4}th{border-bottom:2px solid #999;background:#fafafa}
td ul{margin:0;padding-left:1rem}.scroll{overflow-x:auto}
table.claims td:nth-child(1){width:27%}table.claims td:nth-child(2){width:10%}
table.claims td:nth-child(4){width:17%;font-weight:600}
table.numbers td{white-space:nowrap}table.numbers th{min-width:7.5rem}
td.yes{color:#00664b}td.no{color:#a33c00}td.part{color:#7a5200}
figure{margin:1rem 0 1.6rem}figure img{width:100%;height:auto;border:1px solid #eee}
figcaption{font-size:.9rem;color:#444;max-width:60rem}
summary{cursor:pointer;color:#0059a1;margin:.5rem 0}
"""


def _html(blocks: list[Block]) -> str:
    body = "\n".join(_html_block(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(TITLE)}</title><style>{_CSS}</style></head>\n<body><h1>{html.escape(TITLE)}</h1>\n{body}\n</body></html>\n"
    )


def _html_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Paragraph):
        return f"<p{' class=important' if block.important else ''}>{html.escape(block.text)}</p>"
    if isinstance(block, Picture):
        image = base64.b64encode(block.path.read_bytes()).decode()
        caption = html.escape(block.caption)
        source = f"data:image/svg+xml;base64,{image}"
        return f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'
    head = "".join(f"<th>{html.escape(word)}</th>" for word in block.header)
    rows = "\n".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in block.rows)
    table = f'<table class="{block.kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    table = f'<div class="scroll">{table}</div>'
    return f"<details><summary>{html.escape(block.folded)}</summary>{table}</details>" if block.folded else table


def _html_cell(cell: str | tuple[str, ...]) -> str:
    if isinstance(cell, tuple):
        return "<td><ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in cell) + "</ul></td>"
    kind = (
        "yes"
        if cell == "holds"
        else "no"
        if cell == "does not hold"
        else "part"
        if cell.startswith("holds only")
        else ""
    )
    return f"<td{f' class={kind}' if kind else ''}>{html.escape(cell)}</td>"


def _markdown(blocks: list[Block], folder: Path) -> str:
    return f"# {TITLE}\n\n" + "\n\n".join(_markdown_block(block, folder) for block in blocks) + "\n"


def _markdown_block(block: Block, folder: Path) -> str:
    if isinstance(block, Heading):
        return f"## {block.text}"
    if isinstance(block, Paragraph):
        return f"> {block.text}" if block.important else block.text
    if isinstance(block, Picture):
        picture, drawing = block.path.with_suffix(".png"), block.path
        where = [file.relative_to(folder).as_posix() for file in (picture, drawing)]
        return f"![{block.caption}]({where[0]})\n\n{block.caption} ([SVG]({where[1]}))"
    lines = [_markdown_row(block.header), "|" + "---|" * len(block.header)]
    lines += [_markdown_row(row) for row in block.rows]
    return (f"**{block.folded}**\n\n" if block.folded else "") + "\n".join(lines)


def _markdown_row(row: Sequence[str | tuple[str, ...]]) -> str:
    cells = ("<br>".join(cell) if isinstance(cell, tuple) else cell for cell in row)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
