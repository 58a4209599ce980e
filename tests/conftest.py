"""Settings of all tests: hypothesis looks at the same examples every time, and compiling does not count as slow."""

import pytest
from hypothesis import HealthCheck, settings

from tailguard.engines import memory
from tailguard.kernels.compiling import announcement

# Which test is the first to compile depends on what ran before; its logs must not. tests/test_startup.py listens.
announcement.said = True

settings.register_profile(
    "tailguard",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tailguard")


@pytest.fixture
def busy_threads(monkeypatch):
    """Cut small tables among the threads too, as large ones are."""
    monkeypatch.setattr(memory, "_FEW_VALUES", 1)
