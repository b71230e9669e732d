"""Which server does the emulator pretend to be?"""

import math
from dataclasses import dataclass, field
from operator import attrgetter

from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Family
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.emulator.service import ServiceTime

SLOWEST = 1e-6
"""Of a rate or a factor that divides a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """One emulated server: an address, a model, a size, a speed."""

    model: str
    """The served model's name, as requests say it."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 lets the system choose; :attr:`Emulator.port` tells what it chose."""
    root: str | None = None
    """The engine's ``--model`` string in ``/v1/models``; the served name where nothing else is said."""
    family: Family = field(default_factory=Qwen3VL)
    """How pictures become tokens."""
    max_model_len: int = 262_144
    """Prompt and answer tokens of one sequence. Source: Qwen3-VL's config.json, max_position_embeddings."""
    block_size: int = 16
    """Tokens a KV block holds. Source: vLLM 0.32's default."""
    num_gpu_blocks: int = 45_625
    """KV blocks: 730,000 tokens, what two H200 hold beside Qwen3-VL-32B (fit to llm-d's published benchmark)."""
    max_images: int = 999
    """Images of one prompt. Source: vLLM 0.32's default of ``--limit-mm-per-prompt``."""
    num_answer_tokens: int = 128
    """Tokens of an answer to a request that sets no limit; one that sets ``max_tokens`` gets exactly so many."""
    linked_image_size: tuple[int, int] = (1280, 720)
    """Width and height of every picture that is only a link: the emulator fetches nothing."""
    service_time: ServiceTime = field(default_factory=ServiceTime)
    """How long the work takes."""

    def __post_init__(self) -> None:
        """Refuse what no server could be; raises ConfigError with every problem."""
        at_least = {
            "port": 0,
            "max_model_len": 1,
            "block_size": 1,
            "num_gpu_blocks": 1,
            "max_images": 0,
            "num_answer_tokens": 1,
            "service_time.overhead_s": 0.0,
            "service_time.encode_s_per_embed": 0.0,
            "service_time.decode_step_s": 0.0,
            "service_time.decode_step_s_per_running": 0.0,
            "service_time.max_running": 1,
            "service_time.prefill_tokens_per_s": SLOWEST,
            "service_time.speed": SLOWEST,
        }
        found = {path: attrgetter(path)(self) for path in at_least}
        problems = [
            Problem(path, f"is {value}, expected at least {at_least[path]}")
            for path, value in found.items()
            if not at_least[path] <= value < math.inf
        ]
        if problems:
            raise ConfigError(problems)

    @property
    def num_cache_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.num_gpu_blocks * self.block_size
