"""What each transfer protocol makes of bodies and answers."""

import json
from pathlib import Path

import pytest

from tessera.core.flow.connectors.ec_example import ECExample
from tessera.core.flow.connectors.ec_nixl import MAX_REFERENCES, ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.connectors.protocols import Unconfirmed
from tessera.core.flow.document import Document

ENTRY = b'{"item_indices":[0],"metadata":{"image_grid_thw":[1,44,80]},"peer_host":"10.0.0.1","peer_port":5601}'


def answer(entries):
    return b'{"choices":[],"ec_transfer_params":{' + b",".join(b'"%s":%s' % pair for pair in entries.items()) + b"}}"


def changed(changes, body=b'{"model":"m","ec_transfer_params":{"forged":1},"kv_transfer_params":{"forged":1}}'):
    return json.loads(Document(body).with_changes(changes))


def test_entries_of_several_encoders_are_one_object_and_stay_byte_for_byte():
    ec = ECNixl()
    found = ec.references(answer({b"h1": ENTRY})) | ec.references(answer({b"h2": ENTRY}))
    assert found == {"h1": ENTRY, "h2": ENTRY}
    assert changed(ec.referring(found))["ec_transfer_params"] == {"h1": json.loads(ENTRY), "h2": json.loads(ENTRY)}


def test_an_entry_without_an_address_is_left_out_and_none_is_no_confirmation():
    evicted = b'{"item_indices":[0],"metadata":{}}'
    assert ECNixl().references(answer({b"h1": evicted, b"h2": ENTRY})) == {"h2": ENTRY}
    with pytest.raises(Unconfirmed):
        ECNixl().references(answer({b"h1": evicted}))


def test_an_answer_about_one_item_does_not_refer_to_a_multitude():
    many = {b"h%d" % index: ENTRY for index in range(MAX_REFERENCES)}
    assert len(ECNixl().references(answer(many))) == MAX_REFERENCES
    with pytest.raises(Unconfirmed):
        ECNixl().references(answer(many | {b"more": ENTRY}))


@pytest.mark.parametrize("connector", [ECNixl(), ECExample()])
def test_what_a_client_says_of_embeddings_is_believed_by_nobody(connector):
    assert "ec_transfer_params" not in changed(connector.referring({}))


def test_a_real_encoders_answers_are_read():
    """What vLLM 0.32 answered: with the example connector there is no address, and none is needed."""
    recorded = json.loads((Path(__file__).parents[3] / "emulator" / "samples" / "epd-exchange.json").read_text())
    encoded = [
        each["response"] for each in recorded if each["to"] == "encode" and each["response"].get("ec_transfer_params")
    ]
    assert len(encoded) >= 3
    for response in encoded:
        body = json.dumps(response).encode()
        assert ECExample().references(body) == {}
        with pytest.raises(Unconfirmed):
            ECNixl().references(body)


def test_blocks_are_kept_there_and_fetched_as_the_prefiller_says():
    kept = changed(KVNixl().keeping())["kv_transfer_params"]
    assert kept == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    said = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "later_field": 1.5}
    changes = KVNixl().fetching(json.dumps({"kv_transfer_params": said}).encode())
    assert changed(changes)["kv_transfer_params"] == said


@pytest.mark.parametrize("said", [b"null", b"{}", b"[]", b'"x"', b"1"])
def test_a_prefiller_that_says_nothing_is_not_believed(said):
    with pytest.raises(Unconfirmed):
        KVNixl().fetching(b'{"kv_transfer_params":' + said + b"}")
    with pytest.raises(Unconfirmed):
        KVNixl().fetching(b"{}")
