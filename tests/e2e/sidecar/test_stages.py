"""E/PD, P/D and E/P/D through the sidecar with real sockets: who is asked for what, and what the client gets."""

import json
import re

import pytest

from .conftest import CHAT, chat, picture
from .servers import WORDS

PARALLEL_S = 0.2


async def test_eleven_items_of_which_eight_are_distinct_by_three_encoders_at_once(world):
    encoders = [await world.serve("encode", delay_s=PARALLEL_S) for _ in range(3)]
    engine = await world.serve("decode")
    await world.begin(engine)
    names = [f"http://pictures/{index}" for index in range(8)]
    body = chat(*names, names[0], names[3], names[3], stream=True, temperature=0)
    reply = await world.post(body, x_encoder_hosts_ports=",".join(each.id for each in encoders))
    assert (reply.status, reply.words) == (200, list(WORDS))
    jobs = [asked for encoder in encoders for asked in encoder.asked]
    assert sorted(url for job in jobs for url in job.media) == names
    assert [len(encoder.asked) for encoder in encoders] == [3, 3, 2]
    assert max(job.started_at for job in jobs) < min(job.ended_at for job in jobs), "one waited for another"
    (asked,) = engine.asked
    sent = asked.json
    assert set(sent.pop("ec_transfer_params")) == {f"hash:{name}" for name in names}
    assert sent == body
    metrics = await world.metrics()
    assert metrics["tessera_sidecar_encode_requested_total"] == 8
    assert metrics["tessera_sidecar_encoded_total"] == 8
    assert metrics["tessera_sidecar_transferred_total"] == 8
    assert metrics["tessera_sidecar_handed_over_total"] == 0
    assert not any("fell_back_total" in name for name in metrics)
    assert metrics['tessera_sidecar_stage_seconds_count{stage="encode"}'] == 1
    stages = reply.headers["x-tessera-stages"]
    entry = r"encode=127\.0\.0\.1:\d+,[23],200,0\.\d{6};"
    assert re.fullmatch(rf"({entry}){{3}}decode=127\.0\.0\.1:{world.ports['http']},0,200,\d\.\d{{6}}", stages)


async def test_prefill_there_decode_here(world):
    prefiller, engine = await world.serve("prefill"), await world.serve("decode")
    await world.begin(engine)
    body = chat(max_tokens=20, min_tokens=2, stream=True, stream_options={"include_usage": True})
    reply = await world.post(body, x_prefiller_host_port=prefiller.id, authorization="Bearer x")
    assert reply.words == list(WORDS)
    assert b'"cached_tokens":5' in reply.body
    there, here = prefiller.asked[0], engine.asked[0]
    assert there.path == here.path == CHAT
    assert (there.json["max_tokens"], there.json["stream"]) == (1, False)
    assert not {"min_tokens", "stream_options"} & there.json.keys()
    assert there.headers["authorization"] == here.headers["authorization"] == ["Bearer x"]
    assert here.json.pop("kv_transfer_params")["remote_port"] == 5600
    assert {name: value for name, value in here.json.items() if name != "kv_transfer_params"} == body
    assert re.fullmatch(
        rf"prefill={prefiller.id},0,200,[\d.]+;decode=127\.0\.0\.1:{world.ports['http']},0,200,[\d.]+",
        reply.headers["x-tessera-stages"],
    )


async def test_all_three_apart(world):
    encoder, prefiller, engine = [await world.serve(role) for role in ("encode", "prefill", "decode")]
    await world.begin(engine)
    reply = await world.post(chat("http://a"), x_encoder_hosts_ports=encoder.id, x_prefiller_host_port=prefiller.id)
    assert reply.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 5
    assert prefiller.asked[0].json["ec_transfer_params"].keys() == {"hash:http://a"}
    assert "ec_transfer_params" not in engine.asked[0].json
    assert engine.asked[0].json["kv_transfer_params"]["remote_port"] == 5600
    metrics = await world.metrics()
    assert metrics["tessera_sidecar_handed_over_total"] == 1
    assert [
        metrics[f'tessera_sidecar_stage_seconds_count{{stage="{stage}"}}'] for stage in ("encode", "prefill", "decode")
    ] == [1, 1, 1]
    assert metrics['tessera_sidecar_requests_total{dialect="chat",status="2xx"}'] == 1


async def test_a_line_for_each_request(world, caplog):
    encoder, engine = await world.serve("encode", "mute"), await world.serve("decode")
    await world.begin(engine)
    with caplog.at_level("INFO", "tessera.sidecar"):
        await world.post(chat("http://secret"), x_encoder_hosts_ports=encoder.id, x_request_id="mine")
    (line,) = [record.message for record in caplog.records if record.name == "tessera.sidecar"]
    assert line.startswith("request_id='mine' dialect=chat status=200 duration_s=0.")
    assert line.endswith(" fell_back_encode_no-reference=1")
    assert "secret" not in line


async def test_shared_storage(world):
    encoder, engine = await world.serve("encode", mode="mute"), await world.serve("decode")
    await world.begin(engine, ec="ec-example")
    body = chat("http://a")
    assert (await world.post(body, x_encoder_hosts_ports=encoder.id)).status == 200
    assert engine.asked[0].json == body


async def test_a_plan_by_item(world):
    first, second, engine = [await world.serve(role) for role in ("encode", "encode", "decode")]
    await world.begin(engine)
    plan = f"0={first.id},2={second.id}"
    assert (await world.post(chat("http://a", "http://b", "http://c"), x_tessera_encode_plan=plan)).status == 200
    assert ([job.media for job in first.asked], [job.media for job in second.asked]) == ([["http://a"]], [["http://c"]])
    assert engine.asked[0].json["ec_transfer_params"].keys() == {"hash:http://a", "hash:http://c"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/responses",
            {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a"}]}]},
        ),
        (
            "/v1/messages",
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a"}}]}
                ],
            },
        ),
        ("/inference/v1/generate", {"model": "m", "token_ids": [1], "content_parts": [picture("http://a")]}),
    ],
)
async def test_other_apis_are_encoded_as_a_chat_and_answered_at_their_own_path(world, path, body):
    encoder, prefiller, engine = [await world.serve(role) for role in ("encode", "prefill", "decode")]
    encoder.role = "encode_any"
    encoder._encode_any = lambda request, asked: answer_any(asked)
    await world.begin(engine)
    reply = await world.post(body, path, x_encoder_hosts_ports=encoder.id, x_prefiller_host_port=prefiller.id)
    assert reply.status == 200
    assert encoder.asked[0].path == CHAT
    assert (prefiller.asked[0].path, engine.asked[0].path) == (path, path)
    assert prefiller.asked[0].json["ec_transfer_params"].keys() == {"any"}
    assert engine.asked[0].json == body | {"kv_transfer_params": engine.asked[0].json["kv_transfer_params"]}


async def answer_any(asked):
    from aiohttp import web

    assert "http://a" in json.dumps(asked.json["messages"])
    return web.json_response({"ec_transfer_params": {"any": {"peer_host": "127.0.0.1", "peer_port": 1}}})


async def test_a_large_body_arrives_byte_for_byte(world):
    encoder, engine = await world.serve("encode"), await world.serve("decode")
    await world.begin(engine)
    body = json.dumps(chat(f"data:image/png;base64,{'A' * (3 << 20)}", unknown=[1.50, "\u00e9"])).encode()
    assert (await world.post(body)).status == 200
    assert engine.asked[0].body == body
    assert (await world.post(body, x_encoder_hosts_ports=encoder.id)).status == 200
    assert encoder.asked[0].media[0].endswith("A" * (3 << 20))
    assert engine.asked[1].json.pop("ec_transfer_params")
    assert {**engine.asked[1].json, "ec_transfer_params": None} == json.loads(body) | {"ec_transfer_params": None}


async def test_request_ids(world):
    encoder, prefiller, engine = [await world.serve(role) for role in ("encode", "prefill", "decode")]
    await world.begin(engine)
    servers = {"x_encoder_hosts_ports": encoder.id, "x_prefiller_host_port": prefiller.id}
    await world.post(chat("http://a"), **servers, x_request_id="mine")
    await world.post(chat("http://a"), **servers)
    ids = [[each.headers["x-request-id"] for each in server.asked] for server in (encoder, prefiller, engine)]
    assert [each[0] for each in ids] == [["mine-enc-0"], ["mine"], ["mine"]]
    made = ids[2][1][0]
    assert re.fullmatch(r"[0-9a-f-]{36}", made)
    assert [each[1] for each in ids] == [[f"{made}-enc-0"], [made], [made]]
    for server in (encoder, prefiller, engine):
        for asked in server.asked:
            assert not [name for name in asked.headers if name.startswith(("x-encoder", "x-prefiller", "x-tessera"))]
