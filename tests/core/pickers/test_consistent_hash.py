from collections import Counter

import pytest

from tessera.core.facts import InFlightLoad
from tessera.core.pickers.consistent_hash import NUM_POINTS, ConsistentHashPicker, content_name
from tessera.core.rng import SeededRng
from tessera.core.types import PricedRequest


def about(build, *names, texts=()):
    """A request of text digests, then media of these names."""
    text = build.text_request().prompts[0][0]
    parts = [type(text)(num_bytes=4, digests=each) for each in texts]
    return PricedRequest(request=build.request(prompts=((*parts, *(build.media(identifier=name) for name in names)),)))


def pick(build, priced, numbers=range(1, 9), *, loads=None, load_factor=None):
    """The number of the endpoint that is picked."""
    numbers = list(numbers)
    loads = loads or [0] * len(numbers)
    candidates = [
        build.candidate(number, in_flight=InFlightLoad(num_requests=load))
        for number, load in zip(numbers, loads, strict=True)
    ]
    picker = ConsistentHashPicker(load_factor=load_factor)
    (index,) = picker.pick(priced, candidates, [0.0] * len(numbers), SeededRng(0, "r"))
    return numbers[index]


def test_the_first_media_item_decides(build):
    one = about(build, "a", "b")
    assert pick(build, one) == pick(build, about(build, "a", "z", texts=(b"12345678",)))
    assert len({pick(build, about(build, f"m{n}", "b")) for n in range(50)}) > 4


def test_text_decides_where_there_is_no_media(build):
    assert content_name(about(build, texts=(b"\0" * 8, b"\1" * 8)).request) == "00" * 8 + "01" * 8
    assert len({pick(build, about(build, texts=(bytes([n]) * 8,))) for n in range(50)}) > 4


def test_content_is_spread_about_evenly(build):
    counted = Counter(pick(build, about(build, f"m{n}")) for n in range(2000))
    # An eighth each; 100 points make the shares uneven by about a tenth.
    assert all(2000 / 8 * 0.6 < counted[number] < 2000 / 8 * 1.4 for number in range(1, 9))


def test_an_endpoint_that_leaves_moves_only_its_own_content(build):
    requests = [about(build, f"m{n}") for n in range(300)]
    before = [pick(build, each) for each in requests]
    after = [pick(build, each, (1, 2, 3, 4, 5, 6, 7)) for each in requests]
    assert all(new == old for old, new in zip(before, after, strict=True) if old != 8)
    assert 8 in before
    assert 8 not in after


def test_one_picker_follows_the_candidates(build):
    picker = ConsistentHashPicker()
    for numbers in ((1, 2, 3), (2, 3), (1, 2, 3)):
        candidates = [build.candidate(number) for number in numbers]
        for n in range(20):
            (index,) = picker.pick(about(build, f"m{n}"), candidates, [0.0] * len(numbers), SeededRng(0, "r"))
            assert numbers[index] == pick(build, about(build, f"m{n}"), numbers)


@pytest.mark.parametrize(
    ("load", "stays"),
    # 8 endpoints, 7 others with 4 in flight each: the limit is ceil(1.25 * (28 + load + 1) / 8).
    [(4, True), (5, True), (6, False)],
)
def test_a_full_endpoint_hands_on_to_the_next_on_the_ring(build, load, stays):
    request = about(build, "m0")
    home = pick(build, request)
    loads = [load if number == home else 4 for number in range(1, 9)]
    picked = pick(build, request, loads=loads, load_factor=1.25)
    assert (picked == home) is stays
    if not stays:
        # Who comes next is who takes the content when the home is gone.
        assert picked == pick(build, request, [number for number in range(1, 9) if number != home])


def test_the_ring_has_a_hundred_points_each(build):
    picker = ConsistentHashPicker()
    candidates = [build.candidate(number) for number in (1, 2)]
    picker.pick(about(build, "m"), candidates, [0.0, 0.0], SeededRng(0, "r"))
    _, points, owners = picker._ring
    assert len(points) == 2 * NUM_POINTS
    assert points == sorted(points)
    assert Counter(owners) == {0: NUM_POINTS, 1: NUM_POINTS}
