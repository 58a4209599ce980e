"""Seeds: one stream for each (seed, step), whatever happened before; None means private."""

import numpy as np
import pytest

from tailguard.privacy import SeededNoise, SystemNoise, exact_rate, noise_source


def draws(source):
    return source.discrete_gaussian(2.0**30, 4).tolist()


def test_the_stream_of_a_step_depends_on_seed_and_step_alone():
    fresh, used = SeededNoise(7), SeededNoise(7)
    used.uniform(100)
    used.at(2).normal(50)
    assert draws(fresh.at(3)) == draws(used.at(3))
    assert draws(fresh.at(3)) == draws(fresh.at(3))


def test_other_steps_and_seeds_have_other_streams():
    streams = [draws(SeededNoise(seed).at(step)) for seed in (0, 1) for step in (0, 1, 2)]
    streams += [draws(SeededNoise(0)), draws(SeededNoise(0).at(0).at(1)), draws(SeededNoise(0).at(1).at(0))]
    assert len({tuple(stream) for stream in streams}) == len(streams)


def test_the_private_source_has_no_steps():
    source = SystemNoise()
    assert source.at(3) is source


def test_random_state():
    assert noise_source(None) == SystemNoise()
    assert noise_source(None).private
    assert noise_source().seed is None
    assert noise_source(5).seed == 5
    assert noise_source(np.int64(5)).seed == 5
    for make in (np.random.default_rng, np.random.RandomState):
        one, two = noise_source(make(3)), noise_source(make(3))
        assert not one.private
        assert one.seed == two.seed
        generator = make(3)
        assert noise_source(generator).seed != noise_source(generator).seed


@pytest.mark.parametrize("wrong", ["0", 1.5, True, object(), [1]])
def test_anything_else_is_refused(wrong):
    with pytest.raises(TypeError, match="random_state"):
        noise_source(wrong)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="seed"):
        noise_source(-1)


@pytest.mark.parametrize("rate", [1e-12, 0.1, 1 / 3, 0.999999999999, 1.0])
def test_exact_rates_are_multiples_of_2_to_the_minus_32(rate):
    exact = exact_rate(rate)
    assert exact * 2**32 == int(exact * 2**32) >= 1
    assert abs(exact - rate) <= 2.0**-32
    assert exact_rate(exact) == exact


def test_a_private_order_is_that_of_random_bits_of_each(monkeypatch):
    """Exchange the bits of two and their places are exchanged: so it does not matter who has which number.

    An order from a generator with a key of 256 bits has no such property: of 99 things, not every order has a key.
    """
    words = np.random.default_rng(0).integers(0, 2**64, size=(2, 99), dtype=np.uint64)
    words[1] >>= np.uint64(61)  # ties in the first word, for which the second is there
    moved = np.random.default_rng(1).permutation(99)
    places = []
    for bits in (words, words[:, moved]):
        given = iter(bits)
        monkeypatch.setattr(SystemNoise, "_bits", lambda self, size, width, given=given: next(given))
        places.append(np.argsort(SystemNoise().permutation(99)))
    np.testing.assert_array_equal(places[1], places[0][moved])
