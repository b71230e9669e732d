"""Which endpoints can decode, and so face the client?"""

from typing import ClassVar

from tessera.core.filters.role import RoleFilter
from tessera.core.plugin import plugin
from tessera.core.roles import DECODE_ROLES, ROLE_LABEL
from tessera.core.types import Endpoint


@plugin("decode-filter")
class DecodeFilter(RoleFilter):
    """Keep endpoints that can decode.

    Those whose ``llm-d.ai/role`` is decode, prefill-decode, both or
    encode-prefill-decode, and those without a role.
    """

    roles: ClassVar = DECODE_ROLES
    accepts_unlabelled: ClassVar = True


def can_decode(endpoint: Endpoint) -> bool:
    """Whether an endpoint may get a client's request."""
    return DecodeFilter().fits(endpoint.labels.get(ROLE_LABEL))
