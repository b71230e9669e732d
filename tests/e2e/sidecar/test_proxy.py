"""What the sidecar passes on, whom it asks on nobody's word, and its limits."""

import asyncio
import json
import socket
import ssl
import subprocess

import aiohttp
import pytest

from tessera.core.errors import ConfigError
from tessera.core.work import Work
from tessera.live.sidecar import certificate as certificate_module

from .conftest import CHAT, chat, until


async def test_everything_else_is_passed_on(world):
    engine = await world.serve("decode")
    await world.begin(engine)
    async with world.client.get(world.url + "/v1/models?x=%20y") as answer:
        assert (answer.status, await answer.json()) == (200, {"path": "/v1/models?x=%20y"})
        assert answer.headers["x-from"] == "decode"
    reply = await world.post({"a": 1}, "/tokenize", x_prefiller_host_port="6.6.6.6:1")
    assert reply.status == 200
    assert engine.asked[-1].json == {"a": 1}
    assert "x-prefiller-host-port" not in engine.asked[-1].headers
    await engine.stop()
    assert (await world.post({"a": 1}, "/tokenize")).status == 503
    world.servers.remove(engine)


@pytest.mark.parametrize(("mode", "status"), [("ok", 200), ("refuse", 503)])
async def test_health_is_the_engines(world, mode, status):
    engine = await world.serve("decode", mode)
    await world.begin(engine)
    async with world.client.get(world.url + "/health") as answer:
        assert answer.status == status
    assert [each.path for each in engine.asked] == (["/health"] if mode == "ok" else [])


async def test_only_servers_of_the_pool_are_asked(world, endpoints_file):
    known, other, engine = [await world.serve(role) for role in ("encode", "encode", "decode")]
    path = endpoints_file(known)
    await world.begin(engine, endpoints_path=path)
    assert (await world.post(chat("http://a"), x_encoder_hosts_ports=known.id)).status == 200
    for headers in (
        {"x_encoder_hosts_ports": other.id},
        {"x_tessera_encode_plan": f"0={other.id}"},
        {"x_prefiller_host_port": other.id},
        {"x_prefiller_host_port": "127.0.0.1:1,169.254.169.254:80"},
    ):
        reply = await world.post(chat("http://a"), **headers)
        assert (reply.status, reply.json["error"]["type"]) == (403, "PermissionDeniedError")
    assert other.asked == []
    metrics = await world.metrics()
    assert metrics['tessera_sidecar_denied_total{stage="encode"}'] == 2
    assert metrics['tessera_sidecar_denied_total{stage="prefill"}'] == 3
    # One of two is denied: the other one gets both items.
    reply = await world.post(chat("http://a", "http://b"), x_encoder_hosts_ports=f"{other.id},{known.id}")
    assert (reply.status, other.asked, len(known.asked)) == (200, [], 3)
    endpoints_file(known, other)
    await until(lambda: world.sidecar.allow_list.allows(other.id))
    assert (await world.post(chat("http://a"), x_encoder_hosts_ports=other.id)).status == 200


async def test_no_endpoints_file_no_start(world, tmp_path):
    engine = await world.serve("decode")
    with pytest.raises(ConfigError):
        await world.begin(engine, endpoints_path=tmp_path / "none.yaml")
    await world.sidecar.stop()
    world.sidecar = None


@pytest.mark.parametrize("value", ["a", "a:0", "x" * 40_000])
async def test_headers_that_name_no_server(world, value):
    engine = await world.serve("decode")
    await world.begin(engine)
    reply = await world.post(chat(), x_prefiller_host_port=value)
    assert (reply.status, reply.json["error"]["param"]) == (400, "x-prefiller-host-port")
    assert engine.asked == []


def json_of(num_bytes):
    return b'{"x":"' + b"x" * (num_bytes - 8) + b'"}'


async def test_bodies_have_a_limit_with_and_without_a_length(world):
    engine = await world.serve("decode")
    await world.begin(engine, max_body_bytes=1000)
    assert (await world.post(json_of(1000))).status == 200
    for path in (CHAT, "/tokenize"):
        reply = await world.post(b"x" * 1001, path)
        assert (reply.status, reply.json["error"]["type"]) == (413, "RequestTooLargeError")

    async def pieces():
        for _ in range(11):
            yield b"x" * 100

    for path in (CHAT, "/tokenize"):
        async with world.client.post(world.url + path, data=pieces()) as answer:
            assert answer.status == 413
    assert len([asked for asked in engine.asked if asked.path == CHAT]) == 1


async def test_bodies_together_have_a_limit(world):
    engine = await world.serve("decode", "hang")
    await world.begin(engine, max_bodies_bytes=1500, flow={"request_budget_s": 1.0})
    first = asyncio.create_task(world.post(b"x" * 1000))
    await until(lambda: engine.num_open)
    assert (await world.post(b"x" * 1000)).status == 503
    assert (await first).status == 504
    engine.mode, engine.pause_s = "ok", 0.2
    # A body that was sent takes no room while its answer lasts.
    async with world.client.post(world.url + CHAT, json=chat(text="x" * 900, stream=True)):
        assert (await world.post(json_of(1000))).status == 200


async def test_each_rank_has_its_own_engine_for_every_path(world):
    base = free_ports(2)
    engines = []
    for _ in range(2):
        engine = await world.serve("decode")
        engines.append(engine)
    encoder = await world.serve("encode")
    # The ranks' engines must be on neighbouring ports: two small forwarders stand there.
    relays = [await forward(base + index, engine.port) for index, engine in enumerate(engines)]
    try:
        await world.begin(engines[0], num_ranks=2)
        await world.sidecar.stop()
        from tessera.live.sidecar.app import Sidecar
        from tessera.live.sidecar.settings import SidecarSettings

        world.sidecar = Sidecar(
            SidecarSettings(model_port=base, port=0, num_ranks=2, ec="ec-nixl", metrics_port=0, drain_timeout_s=0.2)
        )
        world.ports = await world.sidecar.start()
        for name, engine in (("http", engines[0]), ("http1", engines[1])):
            url = f"http://127.0.0.1:{world.ports[name]}"
            data = json.dumps(chat("http://a"))
            async with world.client.post(
                url + CHAT, data=data, headers={"x-encoder-hosts-ports": encoder.id}
            ) as answer:
                assert answer.status == 200
            async with world.client.get(url + "/metrics") as answer:
                assert answer.status == 200
            assert [each.path for each in engine.asked] == [CHAT, "/metrics"]
        # Through the port of rank 0 a router names the other rank; only its port tells, as an address may be mapped.
        url = f"http://127.0.0.1:{world.ports['http']}{CHAT}"
        named = f"10.0.0.9:{world.ports['http1']}"
        data = json.dumps(chat("http://b"))
        headers = {"x-data-parallel-host-port": named, "x-encoder-hosts-ports": encoder.id}
        async with world.client.post(url, data=data, headers=headers) as answer:
            assert answer.status == 200
        assert [len(engine.asked) for engine in engines] == [2, 3]
        for wrong in ("10.0.0.9:1", "x" * 9, "10.0.0.9:-1"):
            async with world.client.post(url, data=data, headers=headers | {"x-data-parallel-host-port": wrong}) as no:
                assert no.status == 400
                assert "expected ip:port with one of the ports" in await no.text()
        assert [len(engine.asked) for engine in engines] == [2, 3]
    finally:
        for relay in relays:
            relay.close()


def free_ports(count):
    """The first of ``count`` neighbouring ports that are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            base = first.getsockname()[1]
            try:
                others = [socket.create_server(("127.0.0.1", base + index)) for index in range(1, count)]
            except OSError:
                continue
            for other in others:
                other.close()
            return base


async def forward(port, target):
    async def copy(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def connected(reader, writer):
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, onward_writer), copy(onward_reader, writer), return_exceptions=True)

    return await asyncio.start_server(connected, "127.0.0.1", port)


def make_certificate(folder):
    """A new tls.crt for 127.0.0.1 that nobody signed but itself, and its tls.key."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", folder / "tls.key", "-out", folder / "tls.crt", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, *files], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here to make a certificate with")


@pytest.fixture
def certificate(tmp_path):
    make_certificate(tmp_path)
    return tmp_path


async def test_tls_on_both_sides(world, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    encoder = await world.serve("encode", ssl_context=context)
    engine = await world.serve("decode")
    encode = frozenset({Work.ENCODE})
    await world.begin(engine, cert_path=certificate, tls_stages=encode, unverified_stages=encode)
    trusting = ssl.create_default_context(cafile=certificate / "tls.crt")
    url = f"https://127.0.0.1:{world.ports['http']}{CHAT}"
    headers = {"x-encoder-hosts-ports": encoder.id}
    async with world.client.post(url, json=chat("http://a"), headers=headers, ssl=trusting) as answer:
        assert answer.status == 200
    assert "ec_transfer_params" in engine.asked[0].json
    await world.sidecar.stop()
    await world.client.close()
    await world.begin(engine, tls_stages=encode)
    assert (await world.post(chat("http://a"), x_encoder_hosts_ports=encoder.id)).status == 200
    metrics = await world.metrics()
    assert metrics['tessera_sidecar_fell_back_total{cause="unreachable",stage="encode"}'] == 1


async def test_requests_in_flight_end_after_the_end_was_asked_for(world):
    engine = await world.serve("decode", delay_s=0.3)
    await world.begin(engine, drain_timeout_s=5.0)
    asking = asyncio.create_task(world.post(chat()))
    await until(lambda: engine.num_open)
    await world.sidecar.stop()
    assert (await asking).status == 200
    with pytest.raises(aiohttp.ClientConnectorError):
        await world.post(chat())


async def raw(world, *pieces):
    """What comes back for bytes that are sent as they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.ports["http"])
    answers = []
    for piece in pieces:
        writer.write(piece)
        answers.append(await asyncio.wait_for(reader.read(65536), 5))
    writer.close()
    return answers


async def test_a_client_that_waits_to_be_told_to_continue(world):
    engine = await world.serve("decode")
    await world.begin(engine)
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    for path in (CHAT.encode(), b"/tokenize"):
        first, second = await raw(world, head % path, b"{}")
        assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert second.startswith(b"HTTP/1.1 200")
    assert "expect" not in engine.asked[0].headers


@pytest.mark.parametrize("rest", [b"zz\r\n", b"5\r\nxx"])
async def test_a_body_that_does_not_come_as_announced(world, rest):
    engine = await world.serve("decode")
    await world.begin(engine, client_idle_timeout_s=0.2)
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    _, answer = await raw(world, head % CHAT.encode(), rest)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
    assert engine.asked == []


async def test_a_fault_of_our_own_fails_that_request_alone(world, monkeypatch):
    from tessera.core.flow import flow

    engine = await world.serve("decode")
    await world.begin(engine)

    def broken(*_):
        raise AssertionError("a secret")

    with monkeypatch.context() as patched:
        patched.setattr(flow.Flow, "_decode", broken)
        reply = await world.post(chat())
    assert (reply.status, reply.json["error"]["type"]) == (500, "InternalServerError")
    assert b"secret" not in reply.body
    with monkeypatch.context() as patched:
        patched.setattr(flow.Flow, "_forget_body", broken)
        assert (await world.post(chat())).status == 500
    engine.pause_s = 0.1
    with monkeypatch.context() as patched:
        patched.setattr(flow, "End", broken)
        with pytest.raises(aiohttp.ClientPayloadError):
            await world.post(chat(stream=True))
    assert (await world.post(chat())).status == 200


async def test_a_certificate_that_changes_is_taken_and_one_that_is_none_is_not(world, certificate, monkeypatch):
    monkeypatch.setattr(certificate_module.Certificate.watch, "__defaults__", (0.05,))
    engine = await world.serve("decode")
    await world.begin(engine, cert_path=certificate)
    port = world.ports["http"]

    def given():
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)

    async def becomes(expected):
        async with asyncio.timeout(5):
            while await asyncio.to_thread(given) != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    first = (certificate / "tls.crt").read_text()
    await becomes(first)
    (certificate / "tls.crt").write_text("no certificate")
    await asyncio.sleep(0.2)
    await becomes(first)
    make_certificate(certificate)
    second = (certificate / "tls.crt").read_text()
    assert second != first
    await becomes(second)


async def test_a_folder_without_a_certificate_is_refused(world, tmp_path):
    engine = await world.serve("decode")
    with pytest.raises(ConfigError, match=r"expected a folder with tls\.crt and tls\.key"):
        await world.begin(engine, cert_path=tmp_path)
    await world.sidecar.stop()
    world.sidecar = None
