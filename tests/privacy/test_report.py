"""What the user is told."""

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest

from tailguard.privacy import (
    ApproximateDP,
    Budget,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    PrivacyReport,
    ZeroConcentrated,
    epsilon_of,
    gaussian_mu,
)

BUDGET = Budget(1.0, 1e-6)
EVENTS = (
    Gaussian(0.5 * BUDGET.mu, label="scale"),
    Gaussian(gaussian_mu(BUDGET, 10) * math.sqrt(0.75), count=10, label="steps"),
)


def report(events=EVENTS, delta=1e-6, **more):
    return PrivacyReport.from_events(events, delta, n=more.pop("n", 100_000), **more)


def test_the_first_line_is_the_guarantee_in_plain_words():
    first = str(report()).splitlines()[0]
    assert first == "(1, 1e-6)-differentially private when one of the 100000 rows is replaced"
    other = report([PoissonGaussian(0.1, 5.0, 10)], n=None).guarantee
    assert other.endswith("when one of the rows is added or left out (their number is public)")


def test_then_the_events_by_label_with_their_shares():
    text = str(report(method="clipped descent", parameters={"steps": 10}, budget=BUDGET))
    lines = [line.split() for line in text.splitlines()]
    assert ["scale", "25.0", "%"] in [line[:3] for line in lines]
    assert ["steps", "75.0", "%"] in [line[:3] for line in lines]
    assert "clipped descent" in text
    assert "(1, 1e-06)-differential privacy" in text


def test_printed_numbers_are_rounded_up():
    shown = report([ApproximateDP(0.12341, 1e-7)]).guarantee
    assert shown.startswith("(0.1235, 1e-6)")


def test_a_private_report_says_so():
    private = report()
    assert private.private
    assert private.reasons == ()
    assert private.epsilon <= 1.0
    assert private.epsilon == epsilon_of(EVENTS, 1e-6)
    assert private.relation == "replace-one"
    assert private.n_rows == 100_000


def test_a_seeded_run_is_not_private_and_says_what_would_be():
    seeded = report(seed=7)
    assert not seeded.private
    assert seeded.epsilon == report().epsilon
    first = str(seeded).splitlines()[0]
    assert first.startswith("not private: seeded")
    assert "would be (1, 1e-6)-differentially private" in first
    assert "seed 7" in first
    assert not report(seed=0).private


def test_events_without_noise_are_infinite_and_say_why():
    plain = report([*EVENTS, NotPrivate("no noise was asked for")])
    assert plain.epsilon == math.inf
    assert not plain.private
    assert plain.guarantee == "not private: no noise was asked for"
    silent = report([Gaussian(math.inf)])
    assert not silent.private
    assert silent.reasons


REPORTS = [
    report(method="descent", parameters={"steps": np.int64(3), "scale": np.inf, "w": np.ones(2)}, budget=BUDGET),
    report(seed=3, method="descent"),
    report([NotPrivate("plain"), Gaussian(math.inf)]),
    report([PoissonGaussian(0.1, 5.0, 10)], relation="replace-one", n=None),
    report([], budget="nothing"),
]


@pytest.mark.parametrize("one", REPORTS)
def test_reports_survive_json_that_is_valid(one):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(one.to_json(), parse_constant=refuse)
    assert PrivacyReport.from_json(one.to_json(indent=2)) == one
    assert PrivacyReport.from_dict(one.to_dict()) == one


@pytest.mark.parametrize("one", REPORTS)
def test_html_is_self_contained_and_balanced(one):
    open_tags = []

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            open_tags.append(tag)
            assert tag not in {"script", "link", "img", "iframe"}
            assert not {name for name, _ in attrs} & {"src", "href"}

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Check().feed(one._repr_html_())
    assert open_tags == []


def test_html_escapes_everything():
    evil = "<script>alert('x')</script>\"&"
    page = report(
        [Gaussian(0.1, label=evil), NotPrivate(evil, label=evil)],
        method=evil,
        parameters={evil: evil},
        budget=evil,
    )._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


class TestTotals:
    def test_events_are_priced_together_at_the_sum_of_the_deltas(self):
        total = report() + report()
        assert total.events == EVENTS * 2
        assert total.delta == 2e-6
        assert total.epsilon == epsilon_of(EVENTS * 2, 2e-6)
        assert report().epsilon < total.epsilon < 2 * report().epsilon

    def test_never_more_than_basic_composition(self):
        one, two = report([PoissonGaussian(0.02, 1.5, 50)]), report([ZeroConcentrated(0.02, relation="add-remove")])
        total = one + two
        assert total.epsilon <= one.epsilon + two.epsilon
        many = PrivacyReport.combine(*[report([ApproximateDP(0.3, 9e-7)])] * 3)
        assert many.epsilon == pytest.approx(0.9)

    def test_different_relations_are_priced_as_replace_one(self):
        total = report([Gaussian(0.1)]) + report([Gaussian(0.1, relation="add-remove")])
        assert total.relation == "replace-one"
        assert total.epsilon == pytest.approx(epsilon_of([Gaussian(math.sqrt(0.05))], 2e-6))

    def test_a_total_is_private_only_if_every_part_is(self):
        total = PrivacyReport.combine(report(), report(seed=1), report())
        assert not total.private
        assert any(reason.startswith("seeded") for reason in total.reasons)
        assert (report() + report([NotPrivate("plain")])).epsilon == math.inf

    def test_order_and_grouping_do_not_matter(self):
        a, b, c = report(EVENTS[:1]), report(EVENTS[1:]), report([ZeroConcentrated(0.01)])
        totals = [a + b + c, a + (b + c), PrivacyReport.combine(c, b, a)]
        assert {total.epsilon for total in totals} == {totals[0].epsilon} or np.allclose(
            [total.epsilon for total in totals], totals[0].epsilon, rtol=1e-9
        )

    def test_refusals(self):
        with pytest.raises(ValueError, match="same data"):
            report(n=10) + report(n=11)
        with pytest.raises(ValueError, match="at least one"):
            PrivacyReport.combine()
        with pytest.raises(ValueError, match="deltas"):
            report(delta=0.5) + report(delta=0.5)
        with pytest.raises(TypeError):
            report() + 1
        assert PrivacyReport.combine(report()) == report()
