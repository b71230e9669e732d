"""Which part of a request's work may an endpoint do, by its label ``llm-d.ai/role``?

Source: the table of filters in llm-d's disaggregation docs. ``encode-decode`` stands
there too, and no filter of llm-d's takes it.
"""

from typing import Final

ROLE_LABEL: Final = "llm-d.ai/role"
ENCODE_ROLES: Final = frozenset({"encode", "encode-prefill", "encode-prefill-decode"})
PREFILL_ROLES: Final = frozenset({"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"})
DECODE_ROLES: Final = frozenset({"decode", "prefill-decode", "both", "encode-prefill-decode"})
"""An endpoint without the label decodes, too."""
APART_ROLES: Final = frozenset({"encode", "prefill", "encode-prefill"})
"""Those that never face a client."""
