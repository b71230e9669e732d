"""What must a transfer protocol say about the bodies of each stage?"""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from tessera.core.flow.document import edited, fields_of

EC_PARAMS: Final = "ec_transfer_params"
"""The field of a body and of an answer for encoder embeddings. Source: vLLM 0.32."""
KV_PARAMS: Final = "kv_transfer_params"
"""The field of a body and of an answer for KV blocks. Source: vLLM 0.32."""
MAX_ANSWER_BYTES: Final = 4 << 20
"""Of an encoder's or a prefiller's answer, which holds no more than a token and references."""


class Unconfirmed(Exception):
    """An answer of success that gives nothing by which the work can be fetched."""


class ECConnector(Protocol):
    """How embeddings get from the encoder to the engine that uses them."""

    def references(self, answer: bytes) -> Mapping[str, bytes]:
        """What the encoder's answer refers to, by name; may be empty where no reference is needed.

        Raises:
            Unconfirmed: the engine could not get the embeddings by this answer.
        """

    def referring(self, references: Mapping[str, bytes]) -> Mapping[str, bytes | None]:
        """The changes of the using engine's body; whatever the client put there goes."""


class KVConnector(Protocol):
    """How KV blocks get from the prefiller to the engine that decodes."""

    def alone(self, given: bytes) -> Mapping[str, bytes | None]:
        """The changes of the body of an engine that computes the whole prompt; ``given`` is what the client put there.

        Nothing goes by which the engine would fetch blocks, or keep them for somebody.
        """

    def keeping(self) -> Mapping[str, bytes | None]:
        """The changes of the prefill's body that make the prefiller keep the blocks."""

    def fetching(self, answer: bytes) -> Mapping[str, bytes | None]:
        """The changes of the decode's body that make the engine fetch them.

        Raises:
            Unconfirmed: the prefiller's answer does not say where they are.
        """


def joined_objects(entries: Mapping[str, bytes]) -> bytes:
    """A JSON object of values that are JSON texts already."""
    return edited({}, dict(entries))


def object_in(answer: bytes, name: str) -> dict[str, msgspec.Raw]:
    """The fields of the object under ``name`` in an answer; empty where there is none."""
    return fields_of(fields_of(answer).get(name, b""))
