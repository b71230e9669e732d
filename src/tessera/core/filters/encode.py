"""Which endpoints can encode media?"""

from typing import ClassVar

from tessera.core.filters.role import RoleFilter
from tessera.core.plugin import plugin
from tessera.core.roles import ENCODE_ROLES


@plugin("encode-filter")
class EncodeFilter(RoleFilter):
    """Keep endpoints whose ``llm-d.ai/role`` is encode, encode-prefill or encode-prefill-decode."""

    roles: ClassVar = ENCODE_ROLES
