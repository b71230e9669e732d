import pytest

from tessera.core.rng import SeededRng
from tessera.core.scorers.context_length_aware import ContextLengthAware

LABEL = "llm-d.ai/context-length-range"


def candidates(build, *ranges):
    labels = [{} if each is None else {LABEL: each} for each in ranges]
    return [build.candidate(endpoint=build.endpoint(number, **each)) for number, each in enumerate(labels, 1)]


@pytest.mark.parametrize(
    ("label", "tokens", "score"),
    [
        (None, 100, 0.5),
        ("0-10000", 0, 0.3 + 0.7 * (0.35 + 0.3)),
        ("0-10000", 5000, 0.3 + 0.7 * (0.35 + 0.15)),
        ("0-10000", 10_000, 0.3 + 0.7 * 0.35),
        ("0-10000", 11_000, 0.15),
        ("1000-2000", 0, 0.15),
        ("1000-1000", 1000, 1.0),
        ("1000-1000", 1001, 0.3 / 1.001),
        (" 0 - 10000 ", 0, 0.3 + 0.7 * (0.35 + 0.3)),
        ("2000-1000", 1500, 0.0),
        ("-5-10", 5, 0.0),
        ("many", 5, 0.0),
        ("1" * 40 + "-" + "2" * 40, 5, 0.0),
    ],
)
def test_the_formula(build, label, tokens, score):
    assert ContextLengthAware().score(build.priced(tokens), candidates(build, label)) == [pytest.approx(score)]


def test_the_filter_is_off_unless_asked_for_and_never_leaves_nobody(build):
    table = candidates(build, "0-100", None, "200-300", "nonsense")
    rng = SeededRng(0, "r")
    assert ContextLengthAware().keep(build.priced(50), table, rng) == table
    filtering = ContextLengthAware(enable_filtering=True)
    assert filtering.keep(build.priced(50), table, rng) == table[:2]
    assert filtering.keep(build.priced(300), table, rng) == table[1:3]
    assert filtering.keep(build.priced(301), table[2:], rng) == table[2:]


def test_another_label(build):
    one = build.candidate(endpoint=build.endpoint(1, lengths="5-5"))
    assert ContextLengthAware(label="lengths").score(build.priced(5), [one]) == [1.0]
