"""Which hardware runs which model, and what is known of its speed? A table of named profiles.

One profile is fitted: ``h200-tp2-qwen3-vl-32b``, against the table that llm-d published
for its multimodal guide (8 servers of 2 H200 each, Qwen3-VL-32B-Instruct, vLLM 0.23). All
others are derived: data sheets and model configs with the efficiencies of the fitted one,
measured by nobody (``is_fitted``). That holds for servers that only encode too.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from tessera.engine.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU, from its data sheet."""

    name: str
    flops: float
    """Dense bf16 FLOP/s."""
    bytes_per_s: float
    """Memory bandwidth."""
    memory_bytes: float
    """What the driver reports."""
    num_batched_tokens: int
    """Token budget of a step that vLLM chooses for an API server on this GPU."""
    num_seqs: int
    """Sequences in a batch that vLLM chooses, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A vision-language model, from its ``config.json``."""

    name: str
    num_layers: int
    num_gemm_params: float
    """Weights that every token is multiplied with: the layers without the embedding tables."""
    weight_bytes: float
    """The whole checkpoint in bf16."""
    attention_width: int
    """Query heads x head size."""
    kv_bytes_per_token: int
    """2 (K and V) x layers x KV heads x head size x 2 bytes."""
    max_model_len: int
    """Prompt and output together, tokens."""
    max_item_embeds: int
    """Embeddings of the largest media item that the processor makes."""
    vit_num_layers: int
    vit_width: int
    vit_num_layer_params: float
    """Weights of one layer: attention ``4 w^2`` and feed-forward ``2 w f``."""
    vit_num_merger_params: float
    """Weights that each embedding is multiplied with after the layers: the merger and the deepstack mergers."""
    vit_patches_per_embed: int
    """Patches that are merged into one embedding."""
    processed_bytes_per_embed: int
    """What the processor makes of an item for each embedding: patches of 3 channels, 2 frames and 16 x 16 pixels,
    in bf16."""
    embed_bytes: int
    """One row of the encoder's output in bf16: the language model's width, and as much for each deepstack level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What was fitted: shares of the data sheet, and times that no data sheet has.

    Source of all: the fit to the published table; each says how firmly it stands.
    """

    prefill_flops_fraction: float = 0.6168
    """1.22e15 of 2 x 989e12 FLOP/s: pinned by the published 15,751 prompt tokens/s of one server."""
    weights_bandwidth_fraction: float = 0.85
    """Assumed."""
    kv_bandwidth_fraction: float = 0.805
    """Fitted weakly: how soon a plain Service saturates."""
    vit_flops_fraction: float = 0.182
    """0.36e15 of 2 x 989e12 FLOP/s. Fitted: 13 ms for a 720p picture, 44 ms for 1080p."""
    step_s: float = 9.2e-3
    """Host, kernel launches and all-reduce of a step. Fitted: the floor of a decode step is 17.4 ms."""
    vit_call_s: float = 8e-3
    """Of each step that runs the encoder at all. Fitted."""
    vit_item_s: float = 3e-3
    """Host time of each item in it that is exposed. Fitted."""
    vit_time_fraction: float = 1.0
    """Of all encoder time: 1 where the encoder is cut up among the GPUs as the language model is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How a server reads what its peers have: embeddings, KV."""

    bytes_per_s: float = 40e9
    """Assumed: four fifths of one port of 400 Gbit/s."""
    latency_s: float = 2e-3
    """Assumed: the question to the peer, its answer, and the next look at what has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """CPU costs of the API server: one queue, one request after the other.

    That it is serial is an assumption which the published table does not settle.
    """

    latency_s: float = 27e-3
    """Client, HTTP, tokenizer and process hops: delays a request and occupies nothing. Fitted."""
    request_s: float = 4e-3
    """Of each request. Assumed."""
    item_s: float = 4e-3
    """Of each media item, cached or not: base64, hash, copy. Assumed."""
    processing_s_per_pixel: float = 27e-3 / (1280 * 720)
    """Of each item that the processor cache lacks. Fitted: 27 ms for a 720p picture; linear is assumed."""
    token_s: float = 0.46e-3
    """Of each output token streamed: takes its share of the same CPU. Fitted weakly: latency of cache hits
    while many stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """All that an engine is told of itself."""

    name: str
    hardware: Hardware
    num_gpus: int
    """Tensor parallel size."""
    model: Model
    is_fitted: bool = False
    """Whether the figures were fitted to measurements of this very pair; else they are derived."""
    efficiency: Efficiency = field(default_factory=Efficiency)
    front_end: FrontEnd = field(default_factory=FrontEnd)
    role: Role = Role.ALL
    network: Network = field(default_factory=Network)
    max_num_batched_tokens: int
    """Token budget of a step."""
    max_num_seqs: int
    """Sequences in the batch."""
    block_size: int = 16
    """Tokens a KV block holds. Source: vLLM's default."""
    num_blocks: int
    """KV blocks."""
    encoder_cache_embeds: int
    """Size of the encoder cache; also the most embeddings that one step computes."""
    processor_cache_bytes: int
    """``--mm-processor-cache-gb``: 4 by default, 20 in llm-d's guide; 0: none."""
    embedding_store_bytes: int = 40 << 30
    """``ec_cpu_bytes``: host memory for embeddings, where the role encodes for others or takes from them.
    Source: llm-d's guide; vLLM has no default."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise ValueError(
                f"profile {self.name}: max_num_seqs {self.max_num_seqs}, expected 1 to max_num_batched_tokens "
                f"{self.max_num_batched_tokens}, so that every sequence can decode in each step"
            )
        host_bytes = self.processor_cache_bytes, self.embedding_store_bytes
        if min(self.block_size, self.num_blocks, self.encoder_cache_embeds) < 1 or min(host_bytes) < 0:
            raise ValueError(
                f"profile {self.name}: {self.num_blocks} blocks of {self.block_size} tokens, encoder cache of "
                f"{self.encoder_cache_embeds}, processor cache of {self.processor_cache_bytes} and embedding store of "
                f"{self.embedding_store_bytes}: expected at least 1, 1, 1, 0 and 0"
            )


GPU_MEMORY_UTILIZATION: Final = 0.92
"""Source: vLLM's default."""
RESERVE_BYTES_PER_TOKEN: Final = 8.61e9 / 8192
"""Memory of one GPU that is neither weights nor KV, for each token of a step's budget. Set so that the
arithmetic gives the fitted 738,000 KV tokens of two H200 with Qwen3-VL-32B."""

H200: Final = Hardware(
    name="h200",
    flops=989e12,
    bytes_per_s=4.8e12,
    memory_bytes=150.75e9,
    num_batched_tokens=8192,
    num_seqs=1024,
)
"""Source: NVIDIA H200 SXM data sheet; memory as ``nvidia-smi`` reports it."""
H100: Final = Hardware(
    name="h100",
    flops=989e12,
    bytes_per_s=3.35e12,
    memory_bytes=85.52e9,
    num_batched_tokens=8192,
    num_seqs=1024,
)
"""Source: NVIDIA H100 SXM 80 GB data sheet."""
A100: Final = Hardware(
    name="a100",
    flops=312e12,
    bytes_per_s=2.039e12,
    memory_bytes=85.9e9,
    num_batched_tokens=2048,
    num_seqs=256,
)
"""Source: NVIDIA A100 SXM 80 GB data sheet."""
L40S: Final = Hardware(
    name="l40s",
    flops=362e12,
    bytes_per_s=0.864e12,
    memory_bytes=48.3e9,
    num_batched_tokens=2048,
    num_seqs=256,
)
"""Source: NVIDIA L40S data sheet, without sparsity."""

_VIT_WIDTH = 1152
_VIT_FEED_FORWARD = 4304


def _merger_params(output_width: int) -> float:
    """Of Qwen3-VL's merger and its three deepstack mergers: ``4w -> 4w -> output_width`` each."""
    merged = 4 * _VIT_WIDTH
    return 4.0 * (merged * merged + merged * output_width)


QWEN3_VL_32B: Final = Model(
    name="qwen3-vl-32b",
    num_layers=64,
    num_gemm_params=31.2e9,
    weight_bytes=66.7e9,
    attention_width=64 * 128,
    kv_bytes_per_token=2 * 64 * 8 * 128 * 2,
    max_model_len=262_144,
    max_item_embeds=16_384,
    vit_num_layers=27,
    vit_width=_VIT_WIDTH,
    vit_num_layer_params=4.0 * _VIT_WIDTH**2 + 2.0 * _VIT_WIDTH * _VIT_FEED_FORWARD,
    vit_num_merger_params=_merger_params(5120),
    vit_patches_per_embed=4,
    processed_bytes_per_embed=4 * 3 * 2 * 16 * 16 * 2,
    embed_bytes=5120 * (1 + 3) * 2,
)
"""Source: config.json of Qwen/Qwen3-VL-32B-Instruct."""
QWEN3_VL_8B: Final = Model(
    name="qwen3-vl-8b",
    num_layers=36,
    num_gemm_params=6.95e9,
    weight_bytes=17.5e9,
    attention_width=32 * 128,
    kv_bytes_per_token=2 * 36 * 8 * 128 * 2,
    max_model_len=262_144,
    max_item_embeds=16_384,
    vit_num_layers=27,
    vit_width=_VIT_WIDTH,
    vit_num_layer_params=4.0 * _VIT_WIDTH**2 + 2.0 * _VIT_WIDTH * _VIT_FEED_FORWARD,
    vit_num_merger_params=_merger_params(4096),
    vit_patches_per_embed=4,
    processed_bytes_per_embed=4 * 3 * 2 * 16 * 16 * 2,
    embed_bytes=4096 * (1 + 3) * 2,
)
"""Source: config.json of Qwen/Qwen3-VL-8B-Instruct."""


def derived(hardware: Hardware, num_gpus: int, model: Model) -> EngineProfile:
    """A profile from data sheets and the fitted efficiencies.

    The time of a step that no data sheet has goes with the number of layers, because it
    is kernel launches and all-reduces of layers. KV memory is what utilisation leaves
    after weights and a reserve. vLLM's defaults for all else.
    """
    fitted = Efficiency()
    budget = hardware.num_batched_tokens
    kv_bytes = (
        GPU_MEMORY_UTILIZATION * num_gpus * hardware.memory_bytes
        - model.weight_bytes
        - num_gpus * budget * RESERVE_BYTES_PER_TOKEN
    )
    return EngineProfile(
        name=f"{hardware.name}-tp{num_gpus}-{model.name}",
        hardware=hardware,
        num_gpus=num_gpus,
        model=model,
        efficiency=Efficiency(step_s=fitted.step_s * model.num_layers / QWEN3_VL_32B.num_layers),
        max_num_batched_tokens=budget,
        max_num_seqs=hardware.num_seqs,
        num_blocks=int(kv_bytes / model.kv_bytes_per_token) // 16,
        encoder_cache_embeds=max(budget, model.max_item_embeds),
        processor_cache_bytes=4 << 30,
    )


ENCODER_PARALLEL_FRACTION: Final = 0.75
"""Encoder time of ``--mm-encoder-tp-mode data`` in parts of the usual: an assumption, measured by nobody. What it
saves is the exchange between GPUs after each layer, so that an encoder on one GPU saves it too."""


def with_parallel_encoder(profile: EngineProfile) -> EngineProfile:
    """The same with ``--mm-encoder-tp-mode data``: each GPU has the whole encoder and some of the pictures."""
    efficiency = replace(profile.efficiency, vit_time_fraction=ENCODER_PARALLEL_FRACTION)
    return replace(profile, name=f"{profile.name}-encoder-data", is_fitted=False, efficiency=efficiency)


def encoder_of(profile: EngineProfile, num_gpus: int = 1) -> EngineProfile:
    """A server of the same hardware and model that only encodes, without the language model.

    On one GPU nothing is exchanged between GPUs, which counts as in
    ``with_parallel_encoder`` where the profile's own servers do exchange something. KV
    blocks it has none; one stands for them.
    """
    is_spared = num_gpus == 1 < profile.num_gpus
    fraction = ENCODER_PARALLEL_FRACTION if is_spared else profile.efficiency.vit_time_fraction
    return replace(
        profile,
        name=f"{profile.hardware.name}-tp{num_gpus}-{profile.model.name}-encoder",
        num_gpus=num_gpus,
        is_fitted=False,
        role=Role.ENCODE,
        efficiency=replace(profile.efficiency, vit_time_fraction=fraction),
        num_blocks=1,
    )


def with_role(profile: EngineProfile, role: Role) -> EngineProfile:
    """The same hardware and model in another role."""
    if role is profile.role:
        return profile
    return encoder_of(profile, profile.num_gpus) if role is Role.ENCODE else replace(profile, role=role)


_FITTED: Final = EngineProfile(
    name="h200-tp2-qwen3-vl-32b",
    hardware=H200,
    num_gpus=2,
    model=QWEN3_VL_32B,
    is_fitted=True,
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
    # Fitted: 738,000 tokens. The memory arithmetic gives 727,000 to 758,000 at the same utilisation.
    num_blocks=738_000 // 16,
    encoder_cache_embeds=16_384,
    processor_cache_bytes=20 << 30,
)

PROFILES: Final[dict[str, EngineProfile]] = {
    profile.name: profile
    for profile in (
        _FITTED,
        with_parallel_encoder(_FITTED),
        encoder_of(_FITTED),
        derived(H100, 2, QWEN3_VL_32B),
        derived(A100, 2, QWEN3_VL_32B),
        derived(L40S, 4, QWEN3_VL_32B),
        derived(H200, 1, QWEN3_VL_8B),
        derived(H100, 1, QWEN3_VL_8B),
        derived(A100, 1, QWEN3_VL_8B),
        derived(L40S, 1, QWEN3_VL_8B),
    )
}
"""By name: ``<gpu>-tp<number>-<model>``, and what is unlike a plain server."""
