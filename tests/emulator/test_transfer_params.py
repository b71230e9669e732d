"""What is read of the parameters that stages hand each other."""

import pytest

from tessera.emulator.refusals import Refusal
from tessera.emulator.transfer_params import Peer, RemoteKV, TransferParams, read_transfer_params

REMOTE = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 5600, "remote_request_id": "r"}


def test_nothing():
    assert read_transfer_params(None, None) == TransferParams()
    assert read_transfer_params({}, {}) == TransferParams()


def test_a_prefill_keeps_its_kv():
    assert read_transfer_params({"do_remote_decode": True, "do_remote_prefill": False}, None).keeps_kv
    assert not read_transfer_params({"do_remote_decode": "yes"}, None).keeps_kv


def test_a_decode_knows_whom_to_ask():
    read = read_transfer_params({**REMOTE, "remote_prefill_cached_tokens": 32}, None)
    assert read.remote_kv == RemoteKV(peer=Peer("10.0.0.1", 5600), request_id="r", num_cached_tokens=32)


@pytest.mark.parametrize(
    "changed",
    [
        {"do_remote_prefill": 1},
        {"remote_host": None},
        {"remote_host": "evil.example:80/path?"},
        {"remote_host": "a@b"},
        {"remote_host": "x" * 254},
        {"remote_port": 0},
        {"remote_port": 65_536},
        {"remote_port": True},
        {"remote_port": "5600"},
        {"remote_request_id": 7},
        {"remote_request_id": "x" * 1025},
    ],
)
def test_a_peer_that_cannot_be_asked_is_none(changed):
    assert read_transfer_params({**REMOTE, **changed}, None).remote_kv is None


@pytest.mark.parametrize("number", [True, "5", None, 1.5])
def test_cached_tokens_are_a_number_or_not_known(number):
    remote = read_transfer_params({**REMOTE, "remote_prefill_cached_tokens": number}, None).remote_kv
    assert remote is not None
    assert remote.num_cached_tokens is None


def test_items_are_announced_with_and_without_an_address():
    address = {"peer_host": "::1", "peer_port": 5601}
    read = read_transfer_params(None, {"a": {"item_indices": [0], **address}, "b": {"metadata": {}}, "c": 3})
    assert read.announced == {"a": Peer("::1", 5601), "b": None, "c": None}


def test_what_is_too_large_or_no_object_is_refused():
    with pytest.raises(Refusal, match="1025 entries, at most 1024"):
        read_transfer_params(None, {str(number): {} for number in range(1025)})
    with pytest.raises(Refusal, match="kv_transfer_params is list, expected an object"):
        read_transfer_params([], None)
