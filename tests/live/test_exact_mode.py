"""A request finds the endpoint whose engine said that it holds its blocks, pictures included."""

import base64
import io
import json
from itertools import count

import pytest
from PIL import Image

from tessera.config.load import load_text
from tessera.core.facts import Joined, KVStored, PrefixMatch
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, MediaSpan, block_key, extra_keys_of
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask
from tessera.live.service import RouterService
from tessera.live.tokenising import Tokenising

ENGINE_MODEL = "org/model"
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
  parameters:
    estimate: {{model: {{path: {folder}, engineModel: {model}}}}}
    tokenizer: {{path: {folder}}}
- {{type: precise-prefix-cache-producer, parameters: {{hashSeed: "0"}}}}
- {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: precise-prefix-cache-producer}}}}
- {{type: max-score-picker}}
schedulingProfiles:
- {{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}, {{pluginRef: max-score-picker}}]}}
"""
BLOCK = 16


def png(seed=0):
    file = io.BytesIO()
    Image.new("RGB", (256, 256), (seed, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def service(build, model_folder):
    loaded = load_text(CONFIG.format(folder=model_folder, model=ENGINE_MODEL))
    budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
    service = RouterService(loaded.router, loaded.profile, seed=7, budget=budget)
    service.tokenising = Tokenising(loaded.router, service.metrics.failed, budget_s=10.0)
    for number in (1, 2, 3):
        service.observe(Joined(at=0.0, endpoint=build.endpoint(number)))
    yield service
    service.close()


@pytest.fixture
def route(service):
    ids = map("r{}".format, count())

    async def routed(*parts, **body):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}]} | body).encode()
        ask = Ask(body, {":method": "POST", ":path": "/v1/chat/completions"}, None)
        request, prompt = await service.read(ask, next(ids))
        return service.decide(request, 0.0, prompt=prompt)

    return routed


def picture(content):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(content).decode()}}


def stored(priced, endpoint_id, num_blocks):
    """What an engine with that seed would say of a prompt's first blocks."""
    spans = [MediaSpan(priced.items[each.index].identifier, each.offset, each.num_tokens) for each in priced.spans]
    extra = extra_keys_of(spans, num_blocks, BLOCK)
    ids = tuple(priced.token_ids[: num_blocks * BLOCK])
    hashes = BlockHasher(HashAlgorithm.SHA256, "0").hashes(ids, BLOCK, extra)
    wire = [tuple(key[1:] for key in extra[n]) if n in extra else None for n in range(num_blocks)]
    return KVStored(
        at=0.0,
        endpoint_id=endpoint_id,
        block_hashes=tuple(map(block_key, hashes)),
        token_ids=ids,
        block_size=BLOCK,
        extra_keys=tuple(wire),
    )


def matches(decision):
    key = (PrefixMatch, "precise-prefix-cache-producer")
    return [candidate.facts[key] for candidate in decision.primary_stage.candidates]


async def test_the_holder_is_found(service, route):
    first = await route(picture(png()), "What is it?")
    # "<|im_start|>user\n", a marker, 64 cells, a marker, the text, the end and "assistant\n".
    assert first.priced.num_prompt_tokens == 6 + 1 + 64 + 1 + 11 + 2 + 1 + 10
    assert first.priced.untokenised is None
    service.observe(stored(first.priced, "10.0.0.2:8000", 5))
    again = await route(picture(png()), "What is it?")
    found = matches(again)
    assert again.plan == {"default": "10.0.0.2:8000"}
    assert [each.num_matched_tokens for each in found] == [0, 80, 0]
    assert (found[1].num_matched_media_tokens, found[1].num_matched_text_tokens, found[1].is_exact) == (64, 16, True)
    assert found[1].num_total_tokens == 96


async def test_another_picture_shares_nothing_but_the_words_before_it(service, route):
    first = await route(picture(png()), "What is it?")
    service.observe(stored(first.priced, "10.0.0.2:8000", 5))
    other = await route(picture(png(1)), "What is it?")
    assert [each.num_matched_tokens for each in matches(other)] == [0, 0, 0]
    assert len(other.priced.token_ids) == len(first.priced.token_ids)


async def test_an_adapter_has_blocks_of_its_own(service, route):
    """The engine's hashes hold an adapter's name, so the base model's blocks are none of its prompts'."""
    first = await route("What is it, and what may it have been?")
    service.observe(stored(first.priced, "10.0.0.2:8000", 3))
    service.serves(ENGINE_MODEL, frozenset({"sql"}))
    base, adapter = [await route("What is it, and what may it have been?", model=name) for name in ("m", "sql")]
    assert [each.num_matched_tokens for each in matches(base)] == [0, 48, 0]
    assert [each.num_matched_tokens for each in matches(adapter)] == [0, 0, 0]
    assert adapter.priced.untokenised is None


async def test_what_cannot_be_tokenised_is_routed_and_says_so(service, route):
    link = {"type": "image_url", "image_url": {"url": "http://host/x.png"}}
    decision = await route(link, "What is it?")
    assert decision.priced.untokenised == "item-name"
    assert "approximate:item-name" in decision.guesses
    assert not any(each.is_exact for each in matches(decision))
    assert decision.plan
    page = service.metrics.page().decode()
    assert 'tessera_untokenised_total{reason="item-name"} 1.0' in page


async def test_a_template_in_a_request_is_never_rendered(route):
    decision = await route("Hi", chat_template="{{ raise_exception('no') }}")
    assert decision.priced.untokenised == "template-in-request"


async def test_no_ids_are_kept(service, route):
    decision = await route("Hi")
    assert decision.priced.token_ids
    assert service.decisions.find(decision.request.request_id).priced.token_ids is None
