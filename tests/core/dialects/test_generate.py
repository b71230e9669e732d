"""What a generate body asks: ids count once, placeholders as the items that they stand for."""

import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.dialects.generate import GenerateDialect
from tessera.core.draft import DraftMedia, DraftTokens
from tessera.core.errors import RequestError
from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.token import TokenProducer
from tessera.core.reading import dialect_of
from tessera.core.router import Router
from tessera.core.types import Basis, ModelProfile

PATH = {":method": "POST", ":path": "/inference/v1/generate"}
DATA = "data:image/png;base64,iVBORw0KGgo="


def parse(**body):
    return GenerateDialect().parse(json.dumps(body).encode(), ModelProfile())


def priced(**body):
    request, _ = Router.read(json.dumps(body).encode(), PATH, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    return TokenProducer().price(request)


def ids(*token_ids):
    return DraftTokens(token_ids=list(token_ids))


def item(name, *token_ids, modality=Modality.IMAGE):
    return DraftMedia(modality=modality, uuid=name, num_tokens_declared=len(token_ids), placeholder_ids=list(token_ids))


def features(**by_modality):
    """``image=[("name", offset, length), ...]``."""
    return {
        "mm_hashes": {key: [name for name, _, _ in spans] for key, spans in by_modality.items()},
        "mm_placeholders": {
            key: [{"offset": offset, "length": length} for _, offset, length in spans]
            for key, spans in by_modality.items()
        },
    }


def test_items_stand_in_place_of_their_placeholders():
    spans = features(image=[("b", 6, 1), ("a", 2, 3)], audio=[("c", 7, 2)])
    draft = parse(token_ids=list(range(10)), features=spans)
    assert draft.prompts == [
        [ids(0, 1), item("a", 2, 3, 4), ids(5), item("b", 6), item("c", 7, 8, modality=Modality.AUDIO), ids(9)],
    ]
    assert draft.guesses == []


def test_fields_of_the_request():
    sampling = {"max_tokens": 7, "n": 3, "temperature": 0.5}
    draft = parse(model="m", token_ids=[1], sampling_params=sampling, stream=True, cache_salt="s")
    assert (draft.dialect, draft.model, draft.max_output_tokens, draft.num_choices) == ("generate", "m", 7, 3)
    assert (draft.stream, draft.cache_salt, draft.prompts) == (True, "s", [[ids(1)]])
    assert parse(token_ids=[1], sampling_params=[7]).max_output_tokens is None


@pytest.mark.parametrize("token_ids", [None, "text", {}, [1, "a"], [1.5], [True], [[1]], []])
def test_ids_that_are_none_make_no_prompt(token_ids):
    assert parse(token_ids=token_ids).prompts == []


def test_the_price_is_what_the_client_says_and_nothing_twice():
    weighed = priced(token_ids=[7] * 900, features=features(image=[("aa" * 32, 10, 880)]))
    (only,) = weighed.items
    assert (weighed.num_text_tokens, weighed.num_prompt_tokens) == (20, 900)
    assert (only.num_tokens, only.num_embeds, only.num_wrapper_tokens) == (880, 880, 0)
    assert (only.rule_basis, only.size_basis, only.reason) == (Basis.EXACT, Basis.DECLARED, "declared-length")
    assert (only.identifier, only.item.has_content) == ("aa" * 32, False)


def test_tensors_are_skipped_unread():
    spans = features(image=[("a", 0, 1)]) | {"kwargs_data": {"image": ["AAAA" * 1000]}, "mm_metadata": None}
    assert parse(token_ids=[1, 2], features=spans).prompts == [[item("a", 1), ids(2)]]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([("a", 2, 100)], [ids(0, 1), item("a", 2, 3)]),
        ([("a", 9, 3)], [ids(0, 1, 2, 3), item("a")]),
        ([("a", 0, 3), ("b", 1, 3)], [item("a", 0, 1, 2), item("b", 3)]),
        ([("a", 0, 4), ("b", 1, 2)], [item("a", 0, 1, 2, 3), item("b")]),
        ([("a", 1 << 80, 3)], [ids(0, 1, 2, 3), item("a")]),
    ],
)
def test_spans_that_the_engine_refuses_count_no_id_twice(spans, expected):
    assert parse(token_ids=[0, 1, 2, 3], features=features(image=spans)).prompts == [expected]


@pytest.mark.parametrize(
    ("given_features", "guess"),
    [
        ({"mm_hashes": {"image": ["a"]}}, "features-unread:1"),
        ({"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": {"image": []}}, "features-unread:2"),
        (
            {"mm_hashes": {"image": "a"}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}},
            "features-unread:1",
        ),
        (features(vision_chunk=[("a", 0, 1)]), "features-unread:1"),
        (features(image=[("a", -1, 1)]), "features-unread:1"),
        (features(image=[("a", 0, 0)]), "features-unread:1"),
        (features(image=[("a", True, 1)]), "features-unread:1"),
        (features(image=[("a", 0, "1")]), "features-unread:1"),
        (features(image=[(3, 0, 1)]), "features-unread:1"),
        (features(image=[("", 0, 1)]), "features-unread:1"),
        ({"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": ["no place"]}}, "features-unread:1"),
        ("no object", "features-unread"),
        ([1], "features-unread"),
    ],
)
def test_features_that_say_no_place_are_marked(given_features, guess):
    draft = parse(token_ids=[5, 6], features=given_features)
    assert (draft.prompts, draft.guesses) == ([[ids(5, 6)]], [guess])


@pytest.mark.parametrize("given_features", [None, {}, {"mm_hashes": None}, {"mm_hashes": {}, "mm_placeholders": 3}])
def test_no_features(given_features):
    draft = parse(token_ids=[5], features=given_features)
    assert (draft.prompts, draft.guesses) == ([[ids(5)]], [])


def test_strange_values_are_read_a_second_time():
    body = b'{"token_ids":[1,2],"priority":NaN,"features":' + json.dumps(features(image=[("a", 0, 1)])).encode() + b"}"
    draft = GenerateDialect().parse(body, ModelProfile())
    assert (draft.prompts, draft.guesses) == ([[item("a", 1), ids(2)]], ["body-reread"])


def test_raw_media_stand_before_the_ids():
    parts = [{"type": "text", "text": "no"}, {"type": "image_url", "image_url": {"url": DATA}}, {"type": "file"}, None]
    draft = parse(token_ids=[1, 2], content_parts=parts)
    assert draft.prompts == [[DraftMedia(modality=Modality.IMAGE, url=DATA), ids(1, 2)]]
    assert draft.guesses == ["part-unread:file"]


def test_more_items_than_are_accepted_are_refused():
    for num_items, is_accepted in ((5, True), (6, False), (20_000, False)):
        body = json.dumps({"token_ids": [1] * 9, "features": features(image=[("a", 1, 1)] * num_items)}).encode()
        read = partial(Router.read, body, PATH, ModelProfile(max_items=5), request_id="r", at=0.0, wall_at=0.0)
        if is_accepted:
            assert len(read()[0].prompts[0]) == num_items + 2
        else:
            with pytest.raises(RequestError, match="carries 6 media items, at most 5"):
                read()


def test_sglangs_path_is_not_ours():
    assert type(dialect_of("/inference/v1/generate")) is GenerateDialect
    assert dialect_of("/generate") is None


@settings(max_examples=200, deadline=None)
@given(
    num_ids=st.integers(0, 60),
    spans=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 70), st.integers(1, 30)), max_size=8),
)
def test_every_id_counts_once(num_ids, spans):
    weighed = priced(token_ids=[3] * num_ids, features=features(image=spans[::2], video=spans[1::2]))
    parts = [part for prompt in weighed.request.prompts for part in prompt]
    assert weighed.num_prompt_tokens == num_ids
    assert sum(isinstance(part, MediaItem) for part in parts) == (len(spans) if num_ids or parts else 0)
    assert all(0 <= each.num_tokens <= num_ids for each in weighed.items)
