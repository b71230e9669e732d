"""How long may a stage take, and how often is it tried?"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """Limits of one flow; every time in seconds. llm-d's sidecar has none of them: it waits for ever and tries once."""

    encode_timeout_s: float = 15.0
    """One encode job at one encoder; later than that, another one is asked."""
    encode_budget_s: float = 30.0
    """All encode jobs together; what is not there by then is encoded here."""
    max_encode_attempts: int = 3
    """Encoders that one item is given to before it is encoded here."""
    max_parallel_encodes: int = 16
    """Encode jobs of one request that run at once."""
    prefill_timeout_s: float = 60.0
    """One prefill at one prefiller."""
    prefill_budget_s: float = 120.0
    """All prefills together; then the prompt is prefilled here."""
    max_prefill_attempts: int = 4
    """Prefills that are tried in all before the prompt is prefilled here."""
    prefill_max_retries: int = 0
    """How often the same prefiller is asked again after 502, 503 or 504; llm-d's ``--prefill-max-retries``."""
    prefill_retry_backoff_s: float = 0.2
    """How long before it is asked again; llm-d's ``--prefill-retry-backoff``."""
    request_budget_s: float = 3600.0
    """The whole request, its answer included; every other budget ends with it."""
