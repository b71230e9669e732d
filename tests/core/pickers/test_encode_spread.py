"""Worked by hand: an item of n embeddings takes n hundredths of a second."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.facts import EncoderMatch, FirstTokenCost, MediaRates
from tessera.core.pickers.encode_spread import EncodeSpreadPicker
from tessera.core.rng import SeededRng
from tessera.core.types import Candidate

RATES = MediaRates(
    encode_s_per_item=0.0, encode_s_per_embed=0.01, encode_s_per_embed_squared=0.0, processing_s_per_megapixel=0.0
)


def row(build, number, *, queued=0.0, held=""):
    facts = {
        (FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(queued_s=queued, rates=RATES),
        (EncoderMatch, EncoderMatch.producer): EncoderMatch(identifiers=frozenset(held)),
    }
    return Candidate(build.endpoint(number), facts)


def request_of(build, **sizes):
    items = [build.item(size, identifier=name, index=index) for index, (name, size) in enumerate(sizes.items())]
    return build.priced(10, items)


def shared(build, rows, totals=None, seed=0, **sizes):
    totals = totals or [0.0] * len(rows)
    return EncodeSpreadPicker().share_out(request_of(build, **sizes), rows, totals, SeededRng(seed, "r"))


def loads(shares, sizes, num):
    return sorted(sum(sizes[name] for name, at in shares.items() if at == index) for index in range(num))


def test_the_largest_first_to_who_is_through_first(build):
    sizes = {"a": 2, "b": 7, "c": 3, "d": 5, "e": 4}
    shares = shared(build, [row(build, 1), row(build, 2), row(build, 3)], **sizes)
    # 7 | 5 | 4, then 3 behind 4, then 2 behind 5.
    assert list(shares) == list("abcde")
    assert shares["c"] == shares["e"]
    assert shares["a"] == shares["d"]
    assert loads(shares, sizes, 3) == [7, 7, 7]


def test_behind_what_an_encoder_has_in_flight(build):
    rows = [row(build, 1, queued=0.10), row(build, 2)]
    # 6 and 3 on the idle one end at 0.09; the last, 2, would end at 0.11 there and at 0.12 behind the other's 0.10.
    assert shared(build, rows, a=6, b=3, c=2) == {"a": 1, "b": 1, "c": 1}
    assert shared(build, rows, a=6, b=5, c=2) == {"a": 1, "b": 1, "c": 0}


def test_an_item_goes_where_it_is_held_unless_that_takes_longer(build):
    rows = [row(build, 1), row(build, 2, held="a")]
    assert shared(build, rows, a=5) == {"a": 1}
    assert shared(build, [rows[0], row(build, 2, queued=0.04, held="a")], a=5) == {"a": 1}
    assert shared(build, [rows[0], row(build, 2, queued=0.06, held="a")], a=5) == {"a": 0}
    # It costs nothing there, so the other one is encoded by either.
    assert shared(build, rows, [1.0, 0.0], a=5, b=3) == {"a": 1, "b": 0}


def test_equal_encoders_by_total_then_by_lot(build):
    rows = [row(build, number) for number in range(1, 5)]
    assert {shared(build, rows, [0, 0, 1, 0], seed, a=1)["a"] for seed in range(20)} == {2}
    lots = Counter(shared(build, rows, seed=seed, a=1)["a"] for seed in range(400))
    assert set(lots) == {0, 1, 2, 3}
    assert min(lots.values()) > 60


def test_each_distinct_item_once_and_none_where_there_are_none(build):
    twice = build.priced(1, [build.item(3, identifier="a", index=index) for index in range(2)])
    picker, rows = EncodeSpreadPicker(), [row(build, 1)]
    assert picker.share_out(twice, rows, [0.0], SeededRng(0, "r")) == {"a": 0}
    assert picker.share_out(build.priced(1), rows, [0.0], SeededRng(0, "r")) == {}


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=9), num=st.integers(1, 4))
def test_nobody_is_more_than_an_item_behind_an_even_share(build, sizes, num):
    named = {f"i{index}": size for index, size in enumerate(sizes)}
    shares = shared(build, [row(build, number) for number in range(1, num + 1)], **named)
    assert shares.keys() == named.keys()
    # Whoever is last had the least when its last item came, no more than an even share of the others.
    assert loads(shares, named, num)[-1] <= sum(sizes) / num + max(sizes) * (1 - 1 / num) + 1e-9
