"""What every pricer and every model family holds to, whatever the item claims."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.family import Count, Family, Refused
from tessera.core.parts import Modality
from tessera.core.plugin import Pricer, registered

discover()

PRICERS = {cls.type: cls for cls in registered(Pricer).values()}
FAMILIES = {cls.type: cls for cls in registered(Family).values()}

side = st.integers(1, 100_000)
items = st.lists(
    st.tuples(st.sampled_from(Modality), st.none() | side, st.none() | side, st.integers(0, 1 << 30)), max_size=5
)
headers = st.dictionaries(
    st.sampled_from(["x-llm-d-video-fps", "x-llm-d-video-duration-seconds", "x-llm-d-video-resolution"]),
    st.text(max_size=40) | st.sampled_from(["1e12", "nan", "-1", "1280x720", "24", "1e-300", "99999x99999"]),
)


@pytest.mark.parametrize("type_name", PRICERS)
@given(drawn=items, headers=headers)
def test_every_item_has_a_price_and_says_how_well_it_is_known(type_name, build, drawn, headers):
    media = [
        build.media(modality, f"m{index}", width=width, height=height, num_bytes=num_bytes)
        for index, (modality, width, height, num_bytes) in enumerate(drawn)
    ]
    request = build.request(prompts=(tuple(media),), headers=headers)
    pricer = PRICERS[type_name]()
    priced = pricer.price(request)
    assert priced.request is request
    assert [item.item for item in priced.items] == media
    assert [item.index for item in priced.items] == list(range(len(media)))
    assert all(item.num_tokens >= 1 and item.num_embeds >= 1 for item in priced.items)
    assert all(type(item.num_tokens) is int for item in priced.items)
    assert all(item.reason for item in priced.items if item.size_basis.word == "default")
    assert pricer.price(request) == priced


@pytest.mark.parametrize("type_name", FAMILIES)
@settings(max_examples=30)
@given(width=st.integers(0, 1 << 20), height=st.integers(0, 1 << 20), num_images=st.integers(1, 9))
def test_an_image_of_any_size_is_counted_or_refused(type_name, width, height, num_images):
    count = FAMILIES[type_name]().image(width, height, num_images=num_images)
    if isinstance(count, Refused):
        assert count.reason
    else:
        assert isinstance(count, Count)
        assert 1 <= count.num_tokens <= 1_000_000
        assert 1 <= count.num_embeds <= 1_000_000
        assert count.num_wrapper_tokens >= 0
