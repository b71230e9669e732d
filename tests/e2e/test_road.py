"""Does a request with a picture reach the right endpoint, and do we learn what came of it?"""

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tessera.core.types import Ending, FirstTokenSource
from tessera.emulator import Fault
from tessera.emulator.faults import FaultMode

from .conftest import MODEL, World, wait_for
from .pictures import body, chat, data_uri

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]


def client(world: World) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("num_images", [1, 2, 8])
def test_an_openai_client_is_answered_and_the_usage_is_learned(world: World, num_images: int) -> None:
    urls = [data_uri(1280, 720, "JPEG", seed) for seed in range(num_images)]
    request_id = str(uuid.uuid4())
    answer = client(world).chat.completions.create(**chat(MODEL, urls), extra_headers={"x-request-id": request_id})
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens >= 882 * num_images
    outcome = world.outcome_of(request_id)
    assert outcome.ending is Ending.FINISHED
    assert outcome.status == 200
    assert outcome.usage is not None
    assert (outcome.usage.prompt_tokens, outcome.usage.completion_tokens) == (answer.usage.prompt_tokens, 4)
    assert outcome.endpoint in {f"127.0.0.1:{each.port}" for each in world.emulators}
    assert outcome.decision is not None
    assert [(item.item.width, item.item.height) for item in outcome.decision.priced.items] == [(1280, 720)] * num_images


def test_a_streamed_answer_tells_its_usage_and_its_true_first_token(world: World) -> None:
    request_id = str(uuid.uuid4())
    stream = client(world).chat.completions.create(
        **chat(MODEL, [data_uri(640, 480, "PNG")]),
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-request-id": request_id},
    )
    chunks = list(stream)
    usage = chunks[-1].usage
    assert usage is not None
    outcome = world.outcome_of(request_id)
    assert outcome.usage is not None
    assert outcome.usage.prompt_tokens == usage.prompt_tokens
    assert outcome.first_token_source is FirstTokenSource.BODY
    assert outcome.first_token_at is not None
    assert outcome.decision is not None
    assert outcome.decision.request.at <= outcome.first_token_at <= outcome.finished_at


def test_completions_are_routed_too(world: World) -> None:
    answer = client(world).completions.create(model=MODEL, prompt=["one", "two"], max_tokens=3)
    assert len(answer.choices) == 2


@pytest.mark.parametrize("size_mb", [0.001, 0.3, 20])
def test_the_same_bytes_arrive(world: World, size_mb: float) -> None:
    text = "x" * int(size_mb * (1 << 20))
    content = body(MODEL, [data_uri(64, 64)], text=text, spaced={"odd": [1.50, "\u00e9"]})
    request_id = str(uuid.uuid4())
    headers = {"content-type": "application/json", "x-request-id": request_id}
    answer = httpx.post(f"{world.url}/v1/chat/completions", content=content, headers=headers, timeout=60)
    hashes = [record.sha256 for each in world.emulators for record in each.records if record.sha256]
    assert hashlib.sha256(content).hexdigest() in hashes
    assert answer.status_code == (400 if size_mb == 20 else 200), answer.text[:300]
    assert world.outcome_of(request_id).status == answer.status_code


def test_strange_bodies_are_routed_and_bad_ones_refused(world: World) -> None:
    url = f"{world.url}/v1/chat/completions"
    headers = {"content-type": "application/json"}
    odd = b'{"model": "%b", "messages": [{"role": "user", "content": "\\ud800"}], "temperature": NaN}' % MODEL.encode()
    assert httpx.post(url, content=odd, headers=headers).status_code < 500
    for bad in (b"[1]", b'"text"', b"{", b"\xff\xfe\xfa", b"null"):
        answer = httpx.post(url, content=bad, headers=headers)
        assert answer.status_code == 400, bad
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def test_a_get_and_an_unknown_path_are_routed_without_their_body(world: World) -> None:
    models = httpx.get(f"{world.url}/v1/models")
    assert models.json()["data"][0]["id"] == MODEL
    assert httpx.post(f"{world.url}/v1/nowhere", content=b"not json").status_code == 404


def test_a_body_over_the_limit_is_refused_in_openais_shape(world: World) -> None:
    content = b'{"model": "%b"}' % (b"x" * (65 << 20))
    answer = httpx.post(f"{world.url}/v1/chat/completions", content=content, timeout=60)
    assert answer.status_code == 413
    assert "error" in answer.json()


@pytest.mark.parametrize("mode", [FaultMode.REFUSE, FaultMode.UNAVAILABLE])
@pytest.mark.parametrize("stream", [False, True])
def test_the_next_of_the_list_answers_for_one_that_fails(world: World, mode: FaultMode, stream: bool) -> None:
    world.inject(0, Fault(mode=mode))
    ids = [str(uuid.uuid4()) for _ in range(12)]
    for request_id in ids:
        fields = chat(MODEL, [data_uri(320, 240)], stream=stream)
        answer = httpx.post(f"{world.url}/v1/chat/completions", json=fields, headers={"x-request-id": request_id})
        assert answer.status_code == 200
    outcomes = [world.outcome_of(request_id) for request_id in ids]
    dead = f"127.0.0.1:{world.emulators[0].port}"
    assert all(outcome.endpoint != dead for outcome in outcomes)
    assert any(outcome.num_attempts == 2 for outcome in outcomes), "nobody was sent to the dead endpoint first"


def test_an_abort_frees_its_load(world: World) -> None:
    fields = chat(MODEL, [data_uri(1920, 1080)], max_tokens=4000, stream=True)
    with httpx.stream("POST", f"{world.url}/v1/chat/completions", json=fields) as answer:
        assert answer.status_code == 200
        next(answer.iter_bytes())
        assert world.num_in_flight() == 1
    wait_for(lambda: world.num_in_flight() == 0)
    assert wait_for(lambda: world.outcomes)[-1].ending is Ending.ABORTED
    wait_for(lambda: all(each.records[-1].end for each in world.emulators if each.records))


def test_a_fault_in_one_request_answers_that_request_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    service = world.router.service
    decide = service.decide

    def faulty(request, opened_at, **options):  # type: ignore[no-untyped-def]
        if request.model == "broken":
            raise ZeroDivisionError("a fault of ours")
        return decide(request, opened_at, **options)

    monkeypatch.setattr(service, "decide", faulty)

    def ask(model: str) -> int:
        fields = chat(model, [], max_tokens=8)
        return httpx.post(f"{world.url}/v1/chat/completions", json=fields, timeout=30).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(ask, [MODEL, MODEL, "broken", MODEL] * 6))
    assert statuses == [200, 200, 500, 200] * 6
    answer = httpx.post(f"{world.url}/v1/chat/completions", json=chat("broken", []))
    assert answer.json()["error"]["code"] == "router_error"
    assert b"tessera_internal_errors_total" in httpx.get(f"{world.admin}/metrics").content


def test_debug_explains_the_decision(world: World) -> None:
    request_id = str(uuid.uuid4())
    fields = chat(MODEL, [data_uri(1280, 720)])
    httpx.post(f"{world.url}/v1/chat/completions", json=fields, headers={"x-request-id": request_id})
    record = httpx.get(f"{world.admin}/debug/decisions/{request_id}").json()
    stage = record["stages"][0]
    assert len(stage["candidates"]) == len(world.emulators)
    assert stage["winner"] in {row["endpoint"] for row in stage["candidates"]}
    assert len(stage["fallbacks"]) == 2
    assert all(row["facts"]["Load"]["num_running"] is not None for row in stage["candidates"])
    listed = httpx.get(f"{world.admin}/debug/decisions").json()["decisions"]
    assert request_id in {row["client_request_id"] for row in listed}
    assert httpx.get(f"{world.admin}/debug/decisions/none-such").status_code == 404


def test_health(world: World) -> None:
    assert httpx.get(f"{world.admin}/healthz").status_code == 200
    assert httpx.get(f"{world.admin}/readyz").status_code == 200


def test_load_spreads_within_one_scrape_period(world: World) -> None:
    """A burst that no scrape has seen yet: the reservations of our own ledgers spread it."""
    fields = chat(MODEL, [data_uri(640, 480)], max_tokens=60)

    def ask(_: int) -> str:
        request_id = str(uuid.uuid4())
        httpx.post(f"{world.url}/v1/chat/completions", json=fields, headers={"x-request-id": request_id}, timeout=30)
        return request_id

    with ThreadPoolExecutor(12) as pool:
        ids = list(pool.map(ask, range(12)))
    served = [world.outcome_of(request_id).endpoint for request_id in ids]
    assert max(served.count(endpoint) for endpoint in set(served)) <= 8


def test_the_price_is_compared_with_what_the_engine_counted(world: World) -> None:
    """Nothing is configured, so the family is guessed by the model's name; the emulator counts as Qwen3-VL does."""
    before = sum(row["num_reports"] for row in pricing(world))
    for seed in range(3):
        fields = chat(MODEL, [data_uri(1280, 720, seed=seed)])
        httpx.post(f"{world.url}/v1/chat/completions", json=fields, timeout=20)
    wait_for(lambda: sum(row["num_reports"] for row in pricing(world)) >= before + 3)
    row = pricing(world)[0]
    assert row["model"] == MODEL
    assert abs(row["bias"]) < 0.05
    assert row["is_wrong"] is False
    page = httpx.get(f"{world.admin}/metrics").text
    assert 'tessera_estimate_bias{modality="image"' in page


def pricing(world: World) -> list[dict]:
    rows = httpx.get(f"{world.admin}/debug/pricing").json()["rows"]
    return [row for row in rows if row["modality"] == "image"]


def test_a_picture_that_is_named_and_not_sent_goes_to_who_was_sent_it(world: World) -> None:
    api = client(world).chat.completions

    def ask(number: int, url: str | None) -> str:
        request_id = str(uuid.uuid4())
        picture = {"type": "image_url", "image_url": {"url": url} if url else None, "uuid": f"picture {number}"}
        content = [{"type": "text", "text": "What is this?"}, picture]
        messages: Any = [{"role": "user", "content": content}]
        api.create(model=MODEL, messages=messages, max_tokens=1, extra_headers={"x-request-id": request_id})
        return str(world.outcome_of(request_id).endpoint)

    first = [ask(number, data_uri(64, 64, "PNG", number)) for number in range(6)]
    assert [ask(number, None) for number in range(6)] == first
    with pytest.raises(openai.BadRequestError) as refused:
        ask(99, None)
    assert refused.value.status_code == 400
