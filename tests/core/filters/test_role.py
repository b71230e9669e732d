"""The three role filters, by the table of llm-d's specification."""

import pytest

from tessera.core.errors import DropReason
from tessera.core.filters.decode import DecodeFilter, can_decode
from tessera.core.filters.encode import EncodeFilter
from tessera.core.filters.prefill import PrefillFilter
from tessera.core.rng import SeededRng

ROLES = [
    "encode",
    "prefill",
    "decode",
    "both",
    "prefill-decode",
    "encode-prefill",
    "encode-prefill-decode",
    "encode-decode",
    "",
    None,
]
ACCEPTED = {
    EncodeFilter: {"encode", "encode-prefill", "encode-prefill-decode"},
    PrefillFilter: {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"},
    DecodeFilter: {"decode", "prefill-decode", "both", "encode-prefill-decode", None},
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_accepts_the_roles_of_the_table_in_order(build, kind):
    candidates = [build.candidate(endpoint=build.endpoint(n, role=role)) for n, role in enumerate(ROLES, 1)]
    kept = kind().keep(build.priced(), candidates, SeededRng(1, "r"))
    assert [c.endpoint.labels.get("llm-d.ai/role") for c in kept] == [role for role in ROLES if role in ACCEPTED[kind]]
    assert kind.rejection is DropReason.NO_ENDPOINTS


def test_who_may_face_a_client_is_who_can_decode(build):
    assert [can_decode(build.endpoint(role=role)) for role in ("encode", "decode", None)] == [False, True, True]
