"""How long does a piece of work take? Seconds from a profile."""

from collections.abc import Iterable

from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import MediaSegment


class Costs:
    """Service times of one engine.

    A step takes ``step + (weights^3 + gemm^3)^(1/3) + KV read + prefill attention + encoder``:
    reading the weights and multiplying with them overlap, so that the larger of the two
    counts with a soft corner; the rest comes one after the other. KV is read by sequences
    that decode; prefill attention is bound by arithmetic.
    """

    __slots__ = ("_gemm_s", "_pair_s", "_profile", "_step_s", "_vit_flops", "_weights_s", "kv_s")

    def __init__(self, profile: EngineProfile) -> None:
        """Work out the rates once."""
        efficiency, hardware, model = profile.efficiency, profile.hardware, profile.model
        flops = efficiency.prefill_flops_fraction * profile.num_gpus * hardware.flops
        bytes_per_s = profile.num_gpus * hardware.bytes_per_s
        self._profile = profile
        self._step_s = efficiency.step_s
        self._weights_s = model.weight_bytes / (efficiency.weights_bandwidth_fraction * bytes_per_s)
        self._gemm_s = 2.0 * model.num_gemm_params / flops
        self._pair_s = 4.0 * model.attention_width * model.num_layers / flops
        self._vit_flops = efficiency.vit_flops_fraction * profile.num_gpus * hardware.flops
        self.kv_s: float = model.kv_bytes_per_token / (efficiency.kv_bandwidth_fraction * bytes_per_s)
        """Of each context token that a decoding sequence reads in a step."""

    def fixed_s(self, num_tokens: int, num_pairs: float = 0.0, encode_s: float = 0.0) -> float:
        """A step without its KV read.

        Args:
            num_tokens: tokens computed, of decodes and prefills.
            num_pairs: query-key pairs of prefill attention (``num_prefill_pairs``).
            encode_s: encoder time in it.
        """
        gemm_s = self._gemm_s * num_tokens
        product_s: float = (self._weights_s**3 + gemm_s**3) ** (1 / 3)
        return self._step_s + product_s + self._pair_s * num_pairs + encode_s

    def encode_s(self, items: Iterable[MediaSegment]) -> float:
        """Encoder time of a step that runs these items; nothing for none."""
        efficiency = self._profile.efficiency
        item_s = [self._encode_flops(item) / self._vit_flops + efficiency.vit_item_s for item in items]
        return efficiency.vit_time_fraction * (efficiency.vit_call_s + sum(item_s)) if item_s else 0.0

    def encode_step_s(self, items: Iterable[MediaSegment]) -> float:
        """A step of a server that only encodes; one without items still goes through the encoder's runner."""
        efficiency = self._profile.efficiency
        return max(self.encode_s(items), efficiency.vit_time_fraction * efficiency.vit_call_s)

    def embed_bytes(self, item: MediaSegment) -> int:
        """What an item's embeddings take in memory and on the network."""
        return item.num_embeds * self._profile.model.embed_bytes

    def kv_bytes(self, num_tokens: int) -> int:
        """What the KV of so many tokens takes."""
        return num_tokens * self._profile.model.kv_bytes_per_token

    def _encode_flops(self, item: MediaSegment) -> float:
        model = self._profile.model
        num_patches = item.num_embeds * model.vit_patches_per_embed
        # Patches of one encoder frame attend to each other. A frame of a clip is two sampled ones.
        num_pairs = num_patches * num_patches / ((item.num_frames + 1) // 2)
        layers = model.vit_num_layers
        linear = 2.0 * layers * model.vit_num_layer_params * num_patches
        attention = 4.0 * layers * model.vit_width * num_pairs
        return linear + attention + 2.0 * model.vit_num_merger_params * item.num_embeds

    def processing_s(self, item: MediaSegment) -> float:
        """CPU time to turn an item into what the encoder reads; the processor cache saves it."""
        return self._profile.front_end.processing_s_per_pixel * item.width * item.height * item.num_frames

    def processed_bytes(self, item: MediaSegment) -> int:
        """What the processor cache stores of an item."""
        return item.num_bytes or item.num_embeds * self._profile.model.processed_bytes_per_embed


def num_prefill_pairs(num_cached: int, num_new: int) -> float:
    """Query-key pairs of a prefill chunk behind ``num_cached`` tokens: causal, so half among themselves.

    >>> num_prefill_pairs(100, 10)
    1050.0
    """
    return num_new * (num_cached + num_new / 2)
