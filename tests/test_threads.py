"""The threads that run kernels: shared by all callers, and never waiting for each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from tailguard.engines.threads import parallel_map


def test_answers_are_in_the_order_of_the_tasks():
    assert parallel_map(lambda k: k * k, range(100), 7) == [k * k for k in range(100)]


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_error_in_any_share_is_raised(bad):
    def run(k):
        if k == bad:
            raise LookupError(k)
        return k

    with pytest.raises(LookupError, match=str(bad)):
        parallel_map(run, range(6), 3)
    assert parallel_map(abs, range(-3, 3), 3) == [3, 2, 1, 0, 1, 2]  # and the threads go on


def test_maps_within_maps_end():
    """More of them than there are threads: a thread that waited for others of the pool would wait for good."""

    def outer(k):
        return sum(parallel_map(lambda j: j + k, range(32), 16))

    with ThreadPoolExecutor(4) as callers:
        found = [callers.submit(parallel_map, outer, range(64), 16) for _ in range(4)]
        assert not wait(found, timeout=60.0).not_done
    assert all(each.result() == [sum(range(32)) + 32 * k for k in range(64)] for each in found)


def test_no_thread_warns(recwarn):
    parallel_map(lambda k: np.float64(1.0) / np.float64(k), range(4), 2)
    assert not recwarn.list
