"""The shape of the package: imports go one way, imports are light, and every public name is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailguard

ROOT = Path(tailguard.__file__).parent
REPOSITORY = ROOT.parent.parent

# From the bottom up. A part may import parts of lower layers and itself; parts of one layer do not see each other.
LAYERS = (
    ("_checks", "_optional", "_processes"),
    ("privacy", "kernels"),
    ("truncation", "losses", "constraints", "sampling", "schedules", "datasets", "ledger", "intervals", "hints"),
    ("engines",),
    ("means",),
    ("mean",),
    ("descent", "blocks"),
    ("problem", "default"),
    ("algorithms",),
    ("api", "linear_model", "tables"),
    ("model_selection", "preprocessing"),
    ("model_file", "evaluation"),
    ("fit_report",),
    ("demo", "reproduce", "auditing", "planning"),
    ("cli",),
    ("__main__",),
)
LAYER = {part: height for height, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_parts(tree: ast.AST) -> Iterator[str]:
    """The parts of tailguard that a file imports anywhere; the package itself as ""."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError("relative imports hide the direction: write the full name")
        if isinstance(node, ast.ImportFrom) and node.module == "tailguard":
            yield from (alias.name if alias.name in LAYER else "" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tailguard."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tailguard."))


def test_every_part_has_its_layer():
    parts = {part_of(path) for path in FILES}
    assert parts <= set(LAYER), f"say in LAYERS where these belong: {sorted(parts - set(LAYER))}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    """kernels <- truncation <- engines <- means <- mean, descent <- algorithms <- api, linear_model <- cli."""
    part = part_of(path)
    for other in imported_parts(ast.parse(path.read_text(encoding="utf-8"))):
        if other == "":
            assert part == "cli", f"{part} imports the whole package"
        elif other != part:
            assert LAYER[other] < LAYER[part], f"{part} imports {other}, which stands on it or beside it"


@pytest.mark.parametrize("path", sorted((ROOT / "privacy").glob("*.py")), ids=lambda path: path.stem)
def test_privacy_stands_alone(path):
    """It imports the checks of arguments and itself: it can be read, tested and reused without the rest."""
    assert set(imported_parts(ast.parse(path.read_text(encoding="utf-8")))) <= {"_checks", "privacy"}


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").rglob("*.py")), ids=lambda path: path.stem)
def test_kernels_import_nothing_of_the_package(path):
    assert set(imported_parts(ast.parse(path.read_text(encoding="utf-8")))) <= {"kernels"}


@pytest.mark.parametrize(
    "heavy",
    [
        ("numba", "matplotlib", "opendp", "dp_accounting", "polars", "dask", "torch", "typer", "rich"),
        ("pandas", "pyarrow", "sklearn"),
    ],
    ids=["all others", "pandas"],
)
def test_importing_the_package_loads_nothing_that_is_slow_or_optional(heavy):
    code = f"import sys, tailguard; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


# Docstrings in the numpydoc style, with every parameter by name.

DOCUMENTED = (
    "tailguard",
    "tailguard.losses",
    "tailguard.constraints",
    "tailguard.algorithms",
    "tailguard.datasets",
    "tailguard.ledger",
    "tailguard.planning",
    "tailguard.privacy",
    "tailguard.truncation",
    "tailguard.auditing",
)
ALSO = (
    ("tailguard.descent", "Plan"),
    ("tailguard.descent", "State"),
    ("tailguard.descent", "Result"),
    ("tailguard.descent", "descend"),
    ("tailguard.mean", "MeanResult"),
    ("tailguard.intervals", "IntervalTable"),
    ("tailguard.means.gaussian", "GaussianMean"),
    ("tailguard.means.trimmed", "TrimmedMean"),
)
# Helpers that another part of the package calls; not for users.
INTERNAL = {"tailguard.algorithms.paper_smoothing", "tailguard.algorithms.best_smoothing"}


def public_names() -> dict[str, object]:
    found: dict[str, object] = {}
    for module_name in DOCUMENTED:
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None)
        if names is None:
            names = [
                name
                for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", None) == module_name
            ]
        for name in names:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    for module_name, name in ALSO:
        found[f"{module_name}.{name}"] = getattr(importlib.import_module(module_name), name)
    return {name: value for name, value in sorted(found.items()) if name not in INTERNAL}


PUBLIC = public_names()


def section(docstring: str, title: str) -> str:
    """The text of a numpydoc section: from its underline to the next one."""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return match.group(1) if match else ""


def documented_names(docstring: str) -> set[str]:
    """Names before the colon of unindented lines; "a, b : float" names two and "**options" one."""
    names: set[str] = set()
    for title in ("Parameters", "Attributes"):
        for line in section(docstring, title).splitlines():
            if line and not line[0].isspace():
                names.update(name.strip().lstrip("*") for name in line.partition(" : ")[0].split(","))
    return names


def parameters_of(value: object) -> list[str]:
    """Parameters of a function, of a class's constructor or of a dictionary of options."""
    if inspect.isclass(value) and hasattr(value, "__required_keys__"):
        return list(value.__annotations__)
    if inspect.isclass(value) and value.__init__ in (object.__init__, Exception.__init__, ValueError.__init__):
        return []
    try:
        signature = inspect.signature(value)
    except ValueError:
        return []
    return [name for name in signature.parameters if name != "self" and not name.startswith("_")]


def is_protocol(value: object) -> bool:
    return getattr(value, "_is_protocol", False)


def test_the_checker_sees_what_is_missing():
    docstring = inspect.cleandoc(
        """Summary.

        Parameters
        ----------
        a, b : float
            Numbers.
        c
            Anything.
        **options
            More.

        Returns
        -------
        d : float
        """
    )
    assert documented_names(docstring) == {"a", "b", "c", "options"}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_with_all_its_parameters(name):
    value = PUBLIC[name]
    docstring = inspect.cleandoc(value.__doc__ or "")
    assert docstring.splitlines()[:1], "no docstring"
    assert docstring.splitlines()[0].rstrip().endswith((".", ":")), "the first line is not a sentence"
    if is_protocol(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return
    missing = set(parameters_of(value)) - documented_names(docstring)
    assert not missing, f"Parameters does not name {sorted(missing)}"
    unknown = documented_names(docstring) - set(parameters_of(value)) - public_attributes(value)
    assert not unknown, f"Parameters names {sorted(unknown)}, which do not exist"


def public_attributes(value: object) -> set[str]:
    """Attributes that a class may document beside its parameters; a fitted one, like coef_, ends in "_"."""
    if not inspect.isclass(value):
        return set()
    fitted = {name for name in documented_names(inspect.cleandoc(value.__doc__ or "")) if name.endswith("_")}
    assigned = set(re.findall(r"self\.(\w+)", inspect.getsource(value)))
    return {name for name in dir(value) if not name.startswith("_")} | fitted | assigned


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if inspect.isclass(value)])
def test_every_public_method_has_a_docstring(name):
    kind = PUBLIC[name]
    for attribute, member in vars(kind).items():
        if attribute.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        assert member.__doc__, f"{name}.{attribute} has no docstring"


# Nothing in the repository knows whose machine it was written on.


def test_no_file_has_a_path_of_somebodys_machine():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    machine = re.compile(r"(?<![\w.:/~-])/(?:work|home|root|Users|scratch|mnt)/\w|[A-Z]:\\Users\\")
    for file in listed.stdout.splitlines():
        path = REPOSITORY / file
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        match = machine.search(text)
        assert match is None, f"{file} says {match.group() if match else ''}"
