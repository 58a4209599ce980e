"""Events are frozen records that survive JSON and refuse what is not a parameter."""

import json
import math
from dataclasses import FrozenInstanceError

import pytest

from tailguard.privacy import (
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    Selection,
    UnknownEventError,
    ZeroConcentrated,
)

EVENTS = [
    Gaussian(0.1, count=3, samples=30, label="steps"),
    Gaussian(math.inf, relation="add-remove", label="inf"),
    PoissonGaussian(0.01, 1.5, count=100, samples=1000, label="steps"),
    ZeroConcentrated(0.2, count=2, relation="add-remove"),
    ApproximateDP(0.5, 1e-9, label="scale"),
    Selection(0.1, 0.2, heads=4, samples=30, concentrated=True, label="search"),
    NotPrivate("no noise was asked for", label="fit"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_json(event):
    text = json.dumps(event.to_dict(), allow_nan=False)
    assert Event.from_dict(json.loads(text)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_cannot_be_changed(event):
    with pytest.raises(FrozenInstanceError):
        event.label = "cheaper"


def test_poisson_sampling_speaks_of_add_remove_only():
    assert PoissonGaussian(0.5, 1.0).relation == "add-remove"
    with pytest.raises(TypeError):
        PoissonGaussian(0.5, 1.0, relation="replace-one")


def test_unknown_names_are_refused():
    with pytest.raises(UnknownEventError, match="Laplace"):
        Event.from_dict({"event": "Laplace", "scale": 1.0})
    with pytest.raises(UnknownEventError):
        Event.from_dict({})


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Gaussian(-0.1), ValueError, "mu.*-0.1"),
        (lambda: Gaussian(math.nan), ValueError, "mu.*nan"),
        (lambda: Gaussian("1"), TypeError, "mu.*'1'"),
        (lambda: Gaussian(True), TypeError, "mu.*True"),
        (lambda: Gaussian(1.0, count=0), ValueError, "count.*>= 1.*0"),
        (lambda: Gaussian(1.0, count=1.5), TypeError, "count.*1.5"),
        (lambda: Gaussian(1.0, samples=-1), ValueError, "samples"),
        (lambda: Gaussian(1.0, relation="swap"), ValueError, "relation.*swap"),
        (lambda: PoissonGaussian(0.0, 1.0), ValueError, "rate"),
        (lambda: PoissonGaussian(1.1, 1.0), ValueError, "rate"),
        (lambda: ZeroConcentrated(-1.0), ValueError, "rho"),
        (lambda: ApproximateDP(1.0, 1.0), ValueError, "delta"),
    ],
)
def test_errors_name_the_argument_and_the_value(build, error, words):
    with pytest.raises(error, match=words):
        build()
