"""The short version of `make fuzz`: a few examples of every target, the same ones every time; see `fuzzing.py`."""

from __future__ import annotations

import pytest

from fuzzing import TARGETS, as_test, attempt, is_clear

EXAMPLES = {"estimators": 40, "means": 60, "minimisers": 60, "functions": 120, "files": 120}


def test_every_target_runs():
    assert EXAMPLES.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_a_clear_error_or_a_defined_result(name):
    as_test(TARGETS[name], EXAMPLES[name], derandomize=True)()


def shallow() -> None:
    raise ValueError("short")


def deep() -> None:
    import numpy as np

    np.zeros(3).reshape(2, 2)


def wrong() -> None:
    _ = [][1]


@pytest.mark.parametrize("call", [shallow, deep, wrong], ids=lambda call: call.__name__)
def test_what_is_not_clear_is_a_failure(call):
    """Power: errors that the package did not raise on purpose do not pass."""
    with pytest.raises((AssertionError, IndexError)):
        attempt(call)


def test_a_complaint_of_the_package_is_clear():
    from tailguard import Budget

    with pytest.raises(ValueError, match="rho") as found:
        Budget(rho=-1.0)
    assert is_clear(found.value)
