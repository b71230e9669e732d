"""The pieces of a prompt: their weights sum to its tokens, their keys stand for what is before them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.matching import atoms
from tessera.core.matching.atoms import Chain, chains
from tessera.core.media.digests import chain_keys, chain_seed, text_digests, token_digests
from tessera.core.parts import MediaItem, Modality, TextPart, TokenPart
from tessera.core.pricing.token import TokenProducer
from tessera.core.router import Router
from tessera.core.types import ModelProfile, PricedRequest

HEADERS = {":method": "POST", ":path": "/v1/chat/completions"}
NO_LIMIT = 1 << 40


def text(content):
    data = content.encode()
    return TextPart(num_bytes=len(data), digests=text_digests(data))


def ids(count):
    numbers = list(range(count))
    return TokenPart(num_tokens=count, digests=token_digests(numbers))


def item(identifier):
    return MediaItem(modality=Modality.IMAGE, format=None, identifier=identifier)


def priced(build, *prompts, item_tokens=10, wrapper=2, **fields):
    request = build.request(prompts=prompts, **fields)
    media = [part for prompt in prompts for part in prompt if isinstance(part, MediaItem)]
    items = [
        build.item(item_tokens, identifier=each.identifier, index=index, num_wrapper_tokens=wrapper)
        for index, each in enumerate(media)
    ]
    texts = [part for prompt in prompts for part in prompt if not isinstance(part, MediaItem)]
    tokens = sum(-(-part.num_bytes // 4) if isinstance(part, TextPart) else part.num_tokens for part in texts)
    return PricedRequest(request=request, items=tuple(items), num_text_tokens=tokens, num_template_tokens=5)


def read(build, body):
    request, _ = Router.read(body, HEADERS, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    return chains(TokenProducer().price(request), NO_LIMIT)


def chat(*content, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": list(content)}]} | fields


def test_a_worked_example(build):
    prompt = (text("x" * 150), item("a"), text("y" * 10), ids(20))
    asked = priced(build, prompt, model="org/m")
    (chain,) = chains(asked, NO_LIMIT)
    assert asked.num_prompt_tokens == 38 + 3 + 20 + 12 + 5
    # 61 tokens over 240 bytes; the first atom also has the template's 5.
    assert chain.weights() == [5 + 16, 16, 6, 12, 2, 16, 5]
    assert chain.ends == [21, 37, 43, 55, 57, 73, 78]
    assert chain.media_ends == [0, 0, 0, 12, 12, 12, 12]
    assert chain.num_tokens == asked.num_prompt_tokens
    digests = text_digests(b"x" * 150)
    pieces = [digests[:8], digests[8:16], digests[16:], b"media:a", text_digests(b"y" * 10)]
    rest = token_digests(list(range(20)))
    assert chain.keys == chain_keys(chain_seed("org/m", "", ""), [*pieces, rest[:8], rest[8:]])


parts = st.one_of(st.text(max_size=300).map(text), st.integers(0, 100).map(ids), st.sampled_from("abc").map(item))
prompts = st.lists(st.lists(parts, max_size=6).map(tuple), max_size=3)


@given(drawn=prompts)
def test_weights_sum_to_the_prompt(build, drawn):
    asked = priced(build, *drawn)
    made = chains(asked, NO_LIMIT)
    if any(chain.keys for chain in made):
        assert sum(sum(chain.weights()) for chain in made) == asked.num_prompt_tokens
    for chain in made:
        assert sum(chain.weights()) == chain.num_tokens
        assert list(chain.ends) == sorted(chain.ends)
        assert all(of_media <= end for of_media, end in zip(chain.media_ends, chain.ends, strict=True))


@given(drawn=prompts, limit=st.integers(0, 200))
def test_a_cut_chain_is_the_start_of_the_whole_one(build, drawn, limit):
    asked = priced(build, *drawn)
    for cut, whole in zip(chains(asked, limit), chains(asked, NO_LIMIT), strict=True):
        assert cut.keys == whole.keys[: len(cut.keys)]
        assert cut.num_tokens == sum(cut.weights()) <= limit
        assert len(cut.keys) == len(whole.keys) or whole.ends[len(cut.keys)] > limit


def test_atoms_of_a_request_are_bounded(build, monkeypatch):
    monkeypatch.setattr(atoms, "MAX_ATOMS", 5)
    made = chains(priced(build, (text("x" * 192),), (text("y" * 640),), (text("z"),)), NO_LIMIT)
    assert [len(chain.keys) for chain in made] == [3, 2, 0]


def test_a_huge_prompt_is_not_cut_into_more_atoms_than_are_kept(build):
    run = text("x" * 6400)
    asked = priced(build, (run,) * 500 + (item("a"),), (text("y" * 64), item("b")))
    whole, rest = chains(asked, 325)
    assert len(whole.keys) == len(whole.ends) == len(whole.media_ends) == 20
    assert (whole.num_tokens, rest.ends, rest.media_ends) == (325, [16, 28], [0, 12])


@pytest.mark.parametrize("other", [{"model": "n"}, {"lora": "l"}, {"cache_salt": "s"}])
def test_model_adapter_and_salt_separate(build, other):
    prompt = (text("x" * 200), item("a"))
    (one,), (two,) = (chains(priced(build, prompt, **fields), NO_LIMIT) for fields in ({"model": "m"}, other))
    assert not set(one.keys) & set(two.keys)


def test_two_images_with_equal_text_share_only_what_is_before_them(build):
    (one,), (two,) = (
        chains(priced(build, (text("x" * 200), item(name), text("y" * 200))), NO_LIMIT) for name in ("a", "b")
    )
    assert one.keys[:4] == two.keys[:4]
    assert not set(one.keys[4:]) & set(two.keys[4:])


def test_each_prompt_has_a_chain_of_its_own(build):
    one, two, three = chains(priced(build, (text("x" * 70),), (text("x" * 70),), (text("y"),)), NO_LIMIT)
    assert one.keys == two.keys != three.keys
    # 37 tokens over 141 bytes.
    assert [one.ends, two.ends, three.ends] == [[5 + 16, 5 + 18], [17, 18], [1]]


def test_what_has_no_identity_ends_the_keys_but_counts(build):
    (chain,) = chains(priced(build, (text("x" * 64), item("none"), text("y" * 64))), NO_LIMIT)
    assert len(chain.keys) == 1
    assert chain.num_tokens == 16 + 5 + 12 + 16
    (chain,) = chains(priced(build, (TextPart(num_bytes=100), item("a"))), NO_LIMIT)
    assert (chain.keys, chain.num_tokens) == ([], 25 + 5 + 12)


def test_text_beyond_its_digests_ends_the_keys(build):
    run = TextPart(num_bytes=640, digests=text_digests(b"x" * 128))
    (chain,) = chains(priced(build, (run, item("a"))), NO_LIMIT)
    assert chain.ends == [16 + 5, 32 + 5]
    assert chain.num_tokens == 160 + 5 + 12


def test_text_that_weighs_without_bytes_goes_to_the_first_atom(build):
    asked = PricedRequest(request=build.request(prompts=((item("a"),),)), items=(build.item(10),), num_text_tokens=7)
    assert chains(asked, NO_LIMIT)[0].ends == [17]


def test_a_pricer_that_left_an_item_out_is_no_fault(build):
    asked = PricedRequest(request=build.request(prompts=((item("a"), item("b")),)), items=(build.item(10),))
    assert chains(asked, NO_LIMIT)[0].ends == [10, 10]


@pytest.mark.parametrize(("tokens", "count"), [(0, 0), (1, 1), (10, 1), (11, 2), (12, 2), (13, 3), (99, 3)])
def test_how_many_atoms_begin_within(tokens, count):
    assert Chain([1, 2, 3], [10, 12, 20], [0, 0, 0], 20).num_starting_before(tokens) == count


def test_how_a_body_is_spelled_is_irrelevant(build):
    picture = bytes(range(256)) * 3
    plain = base64.b64encode(picture).decode()
    other = base64.urlsafe_b64encode(picture).decode().rstrip("=")
    question = {"type": "text", "text": "what is thät? " * 20}
    bodies = [
        json.dumps(
            chat({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{spelled}"}}, question), **how
        )
        for spelled, how in ((plain, {}), (plain, {"indent": 2}), (other, {"ensure_ascii": False}))
    ]
    keys = [[chain.keys for chain in read(build, body.encode())] for body in bodies]
    assert keys[0] == keys[1] == keys[2]
    assert len(keys[0][0]) > 3


def test_a_longer_conversation_begins_as_the_shorter_one(build):
    turns = [{"role": role, "content": f"{role} says " * 30} for role in ("system", "user", "assistant", "user")]
    (short,) = read(build, json.dumps({"messages": turns[:2]}).encode())
    (long,) = read(build, json.dumps({"messages": turns}).encode())
    assert long.keys[: len(short.keys)] == short.keys
