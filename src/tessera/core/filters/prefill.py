"""Which endpoints can prefill?"""

from typing import ClassVar

from tessera.core.filters.role import RoleFilter
from tessera.core.plugin import plugin
from tessera.core.roles import PREFILL_ROLES


@plugin("prefill-filter")
class PrefillFilter(RoleFilter):
    """Keep endpoints that can prefill.

    Those whose ``llm-d.ai/role`` is prefill, encode-prefill, prefill-decode, both
    or encode-prefill-decode.
    """

    roles: ClassVar = PREFILL_ROLES
