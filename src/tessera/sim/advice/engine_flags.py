"""How is a vLLM server of each role started? Flags and environment of one engine version.

Source: vLLM 0.32's own options, and llm-d's guides for E/PD and E/P/D. The EC connector
over NIXL needs GPUs: it was read, not run. The roles themselves were run on a CPU with
the example connector (``make test-vllm``).
"""

import json
from collections.abc import Mapping
from typing import Final

from tessera.engine.profiles import EngineProfile
from tessera.sim.topology import Topology

ENGINE: Final = "vLLM 0.32"
"""What the flags are for: 0.30 and later read ``ec_enable_nixl`` and ``ec_cpu_bytes``, earlier ones ignore the first
without a word and encode everything themselves."""
CLIENT_PORT: Final = 8000
"""Where the router sends requests: the engine, or the sidecar before it."""
ENGINE_PORT: Final = 8200
"""Where the engine listens behind a sidecar."""
EC_PORT: Final = 5610
"""Where an encoder is asked for embeddings. Source: llm-d's guides."""
NIXL_PORT: Final = 5600
"""Where an engine is asked for KV. Source: vLLM's default."""
KV_LEASE_S: Final = 300
"""How long a prefill keeps its KV for the decode. Source: llm-d's guides."""

MODELS: Final[Mapping[str, str]] = {
    "qwen3-vl-32b": "Qwen/Qwen3-VL-32B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
}
"""What a profile's model is called where it is published."""


def flags_of(role: str, topology: Topology, base: EngineProfile, *, has_parallel_encoder: bool = False) -> list[str]:
    """The options behind ``vllm serve MODEL``, one or a pair a line, quoted for a shell.

    >>> from tessera.sim.topology import AGGREGATED, BASE
    >>> flags_of("all", AGGREGATED, BASE)[:2]
    ['--tensor-parallel-size 2', '--mm-processor-cache-gb 20']
    """
    num_gpus = 1 if role == "encode" else topology.gpus_per_server
    flags = [f"--tensor-parallel-size {num_gpus}", f"--mm-processor-cache-gb {base.processor_cache_bytes >> 30}"]
    encodes_itself = role == "all" or (role == "prefill" and not topology.num_encode)
    if has_parallel_encoder and num_gpus > 1 and encodes_itself:
        flags.append("--mm-encoder-tp-mode data")
    if role == "encode":
        flags += ["--mm-encoder-only", "--enforce-eager", "--no-enable-prefix-caching"]
    else:
        flags.append("--enable-prompt-tokens-details")
    if role == "encode" or (topology.num_encode and role in ("prefill", "prefill-decode")):
        flags.append(f"--ec-transfer-config '{json.dumps(_ec(role, base))}'")
    if topology.num_prefill:
        flags += [f"--kv-transfer-config '{json.dumps(_KV)}'"] if role != "encode" else []
    return flags


def environment_of(role: str, topology: Topology) -> list[str]:
    """Assignments before the command; ``HOST`` is the server's own address."""
    found = []
    if topology.num_encode and role != "decode":
        # ECCPUConnector refuses to start without it.
        found.append("VLLM_USE_V2_MODEL_RUNNER=1")
    if role == "encode":
        found += ['VLLM_EC_SIDE_CHANNEL_HOST="$HOST"', f'VLLM_EC_SIDE_CHANNEL_PORT="${{EC_PORT:-{EC_PORT}}}"']
    elif topology.num_prefill:
        found += ['VLLM_NIXL_SIDE_CHANNEL_HOST="$HOST"', f'VLLM_NIXL_SIDE_CHANNEL_PORT="${{NIXL_PORT:-{NIXL_PORT}}}"']
    return found


_KV: Final = {
    "kv_connector": "NixlConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"kv_lease_duration": KV_LEASE_S},
}


def _ec(role: str, base: EngineProfile) -> dict[str, object]:
    return {
        "ec_connector": "ECCPUConnector",
        "ec_role": "ec_producer" if role == "encode" else "ec_consumer",
        "ec_connector_extra_config": {"ec_enable_nixl": True, "ec_cpu_bytes": base.embedding_store_bytes},
    }
