"""What the README shows is run: a reader's first copy and paste works."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_worked_example_runs_and_prints_what_it_says(capsys):
    example, more = EXAMPLES
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    model, average, printed = names["model"], names["average"], capsys.readouterr().out
    # Its noise is drawn afresh: the bounds are several times the spread over 200 runs.
    assert np.all(np.abs(model.coef_ - [100.0, 1500.0]) < [40.0, 500.0])
    assert abs(model.predict([[50, 1]])[0] - 6000.0) < 1000.0
    assert abs(average.value - 6400.0) < 1000.0
    assert model.privacy_.private
    (promised,) = re.findall(r"# (\(1, .*?replaced)", example)
    assert promised in printed
    exec(compile(more, "README.md", "exec"), names)
    assert np.all(np.abs(names["hinted"].coef_ - [100.0, 1500.0]) < [40.0, 500.0])
    assert "[0.025" in capsys.readouterr().out
    assert names["shared"].privacy_.unit == "person"
    assert names["search"].privacy_.epsilon <= 1.0


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/design.md", "docs/guarantees.md"])
def test_links_and_named_files_exist(name):
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
    for file in re.findall(r"`((?:src|tests|benchmarks|docs)/[\w./-]+)`", text):
        assert (ROOT / file).exists(), file


def test_every_command_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", README, flags=re.MULTILINE))
    assert {first or second for first, second in named} <= targets
