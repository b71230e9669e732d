"""What the client gets when an encoder, a prefiller or the engine fails: an answer wherever a local way exists."""

import asyncio
import time

import aiohttp
import pytest

from .conftest import CHAT, chat, until
from .servers import WORDS

FAST = {"encode_timeout_s": 0.6, "encode_budget_s": 5.0, "prefill_timeout_s": 0.6, "prefill_budget_s": 5.0}
FAILURES = {"refuse": "unreachable", "busy": "status", "hang": "late", "cut": "cut"}


@pytest.mark.parametrize("mode", FAILURES)
async def test_another_encoder(world, mode):
    bad, good, engine = await world.serve("encode", mode), await world.serve("encode"), await world.serve("decode")
    await world.begin(engine, flow=FAST)
    reply = await world.post(chat("http://a"), x_tessera_encode_plan=f"0={bad.id};alt={good.id}")
    assert reply.status == 200
    assert engine.asked[0].json["ec_transfer_params"].keys() == {"hash:http://a"}
    metrics = await world.metrics()
    assert metrics[f'tessera_sidecar_retried_total{{cause="{FAILURES[mode]}",stage="encode"}}'] == 1
    assert metrics["tessera_sidecar_encoded_total"] == 1


@pytest.mark.parametrize("mode", FAILURES)
async def test_no_encoder_left(world, mode):
    bad, good, engine = await world.serve("encode", mode), await world.serve("encode"), await world.serve("decode")
    await world.begin(engine, flow=FAST | {"max_encode_attempts": 1})
    body = chat("http://a", "http://b")
    reply = await world.post(body, x_encoder_hosts_ports=f"{bad.id},{good.id}")
    assert reply.status == 200
    sent = engine.asked[0].json
    assert sent.pop("ec_transfer_params").keys() == {"hash:http://b"}, "told of embeddings that nobody confirmed"
    assert sent == body
    metrics = await world.metrics()
    assert metrics[f'tessera_sidecar_fell_back_total{{cause="{FAILURES[mode]}",stage="encode"}}'] == 1
    assert metrics["tessera_sidecar_encode_requested_total"] == 2
    assert metrics["tessera_sidecar_transferred_total"] == 1


@pytest.mark.parametrize("mode", FAILURES)
async def test_no_prefiller_left(world, mode):
    bad, engine = await world.serve("prefill", mode), await world.serve("decode")
    await world.begin(engine, flow=FAST)
    body = chat(stream=True)
    reply = await world.post(body, x_prefiller_host_port=bad.id)
    assert (reply.status, reply.words) == (200, list(WORDS))
    assert engine.asked[0].json == body
    assert (await world.metrics())[f'tessera_sidecar_fell_back_total{{cause="{FAILURES[mode]}",stage="prefill"}}'] == 1


async def test_another_prefiller(world):
    bad, good, engine = [await world.serve("prefill", "cut"), await world.serve("prefill"), await world.serve("decode")]
    await world.begin(engine, flow=FAST)
    assert (await world.post(chat(), x_prefiller_host_port=f"{bad.id},{good.id}")).status == 200
    assert "kv_transfer_params" in engine.asked[0].json


async def test_blocks_that_cannot_be_fetched(world):
    prefiller, engine = await world.serve("prefill"), await world.serve("decode", "no-kv")
    await world.begin(engine)
    reply = await world.post(chat(), x_prefiller_host_port=prefiller.id)
    assert (reply.status, reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]) == (200, 0)
    assert len(engine.asked) == 2
    metrics = await world.metrics()
    assert metrics['tessera_sidecar_retried_total{cause="transfer",stage="decode"}'] == 1


@pytest.mark.parametrize(
    ("mode", "status", "openai", "anthropic"),
    [
        ("refuse", 503, "ServiceUnavailableError", "overloaded_error"),
        ("cut", 502, "BadGatewayError", "api_error"),
    ],
)
async def test_an_engine_that_does_not_answer(world, mode, status, openai, anthropic):
    engine = await world.serve("decode", mode)
    await world.begin(engine)
    for path in (CHAT, "/v1/messages"):
        reply = await world.post(chat(stream=True), path)
        body = reply.json
        assert body["error"].pop("message").startswith("the model server gave no answer (")
        if path == CHAT:
            shape = {"error": {"type": openai, "param": None, "code": status}}
        else:
            shape = {"type": "error", "error": {"type": anthropic}}
        assert (reply.status, body) == (status, shape)
    metrics = await world.metrics()
    assert metrics['tessera_sidecar_requests_total{dialect="chat",status="5xx"}'] == 1
    assert metrics['tessera_sidecar_requests_total{dialect="messages",status="5xx"}'] == 1


@pytest.mark.parametrize(
    ("path", "event"),
    [
        (CHAT, 'data: {"error":{"message":"the model server '),
        (
            "/v1/messages",
            'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"the model server ',
        ),
        ("/v1/responses", 'event: error\ndata: {"type":"error","code":"server_error","message":"the model server '),
    ],
)
async def test_an_engine_that_stops_in_the_middle(world, path, event):
    engine = await world.serve("decode", "stop")
    await world.begin(engine)
    reply = await world.post(chat(stream=True), path)
    assert reply.status == 200
    events = reply.body.decode().split("\n\n")
    assert events[2].startswith(event), "the event that was cut is not passed on"
    assert reply.body.endswith(b"data: [DONE]\n\n" if path == CHAT else b"}\n\n")
    assert len(engine.asked) == 1, "nothing is tried again after the first byte"
    assert (await world.metrics())["tessera_sidecar_answers_cut_total"] == 1


async def test_a_plain_answer_that_stops_is_cut_off(world):
    engine = await world.serve("decode")

    async def stop(request, asked):
        from aiohttp import web

        response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "100"})
        await response.prepare(request)
        await response.write(b'{"choices":')
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    engine._decode = stop
    await world.begin(engine)
    with pytest.raises(aiohttp.ClientPayloadError):
        await world.post(chat())


@pytest.mark.parametrize("stage", ["encode", "prefill", "decode"])
async def test_a_client_that_goes_takes_its_legs_with_it(world, stage):
    servers = {role: await world.serve(role) for role in ("encode", "prefill", "decode")}
    servers[stage].mode = "hang"
    await world.begin(servers["decode"])
    headers = {"x_encoder_hosts_ports": servers["encode"].id, "x_prefiller_host_port": servers["prefill"].id}
    asking = asyncio.create_task(world.post(chat("http://a", "http://b", stream=True), **headers))
    await until(lambda: servers[stage].num_open)
    asking.cancel()
    await world.is_quiet()
    assert all(asked.was_cancelled for asked in servers[stage].asked)
    assert (await world.metrics())['tessera_sidecar_requests_total{dialect="chat",status="0xx"}'] == 1


async def test_a_client_that_goes_in_the_middle_of_its_answer(world, caplog):
    engine = await world.serve("decode", pause_s=0.1)
    await world.begin(engine)
    async with world.client.post(world.url + CHAT, json=chat(stream=True)) as answer:
        await answer.content.readany()
        answer.close()
    await world.is_quiet()
    assert engine.asked[0].was_cancelled
    assert (await world.metrics())["tessera_sidecar_answers_cut_total"] == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_request_has_an_end(world):
    engine = await world.serve("decode", "hang")
    await world.begin(engine, flow={"request_budget_s": 0.8})
    reply = await world.post(chat())
    assert (reply.status, reply.json["error"]["type"]) == (504, "GatewayTimeoutError")
    engine.mode, engine.pause_s = "ok", 0.5
    reply = await world.post(chat(stream=True))
    assert reply.status == 200
    assert reply.body.endswith(
        b'took longer than 0.8 s","type":"BadGatewayError","param":null,"code":502}}\n\ndata: [DONE]\n\n'
    )


async def test_events_come_as_they_are_made(world):
    engine = await world.serve("decode", pause_s=0.15)
    await world.begin(engine)
    began, arrivals = time.monotonic(), []
    async with world.client.post(world.url + CHAT, json=chat(stream=True)) as answer:
        arrivals += [time.monotonic() - began async for _ in answer.content.iter_any()]
    assert len(arrivals) >= 4
    assert arrivals[3] - arrivals[0] > 0.3
