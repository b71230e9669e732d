"""Which server does the emulator pretend to be?"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Family
from tessera.core.matching.block_keys import HashAlgorithm
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.rendering.prompt import PromptRenderer
from tessera.engine.profiles import PROFILES, EngineProfile
from tessera.engine.roles import Role

SLOWEST, FASTEST = 0.001, 1_000_000.0
"""The least speed and the most."""
LONGEST_LEASE_S = 1_000_000_000.0
DEFAULT_PROFILE = "h200-tp2-qwen3-vl-32b"


@dataclass(frozen=True, slots=True, kw_only=True)
class KVEventSettings:
    """How the server tells what its KV cache holds: vLLM's ``--kv-events-config`` and what its hashes depend on."""

    port: int = 0
    """Of the publisher; 0 lets the system choose."""
    replay_port: int = 0
    """Of the replay; 0 lets the system choose."""
    hash_seed: str = ""
    """The PYTHONHASHSEED it was started with; empty: none."""
    hash_algorithm: HashAlgorithm = HashAlgorithm.SHA256
    """vLLM's ``--prefix-caching-hash-algo``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """One emulated server: an address, a model, an engine, a speed."""

    model: str
    """The served model's name, as requests say it."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 lets the system choose; :attr:`Emulator.port` tells what it chose."""
    root: str | None = None
    """The engine's ``--model`` string in ``/v1/models``, which goes into the names of pictures; the served name
    where nothing else is said."""
    profile: EngineProfile = PROFILES[DEFAULT_PROFILE]
    """The engine: hardware, model, caches, limits and the time that work takes."""
    speed: float = 1.0
    """How many times faster than the profile says."""
    family: Family = field(default_factory=Qwen3VL)
    """How pictures become tokens."""
    renderer: PromptRenderer | None = None
    """The way from a request to the model's own token ids; nothing: ids that stand for 4 bytes each."""
    max_model_len: int = 0
    """Prompt and answer tokens of one sequence; 0: what the model takes, or the KV cache where that is less."""
    max_images: int = 999
    """Images of one prompt. Source: vLLM 0.32's default of ``--limit-mm-per-prompt``."""
    num_answer_tokens: int = 128
    """Tokens of an answer to a request that sets no limit; one that sets ``max_tokens`` gets exactly so many."""
    linked_image_size: tuple[int, int] = (1280, 720)
    """Width and height of every picture that is only a link: the emulator fetches nothing."""
    kv_events: KVEventSettings | None = None
    """Nothing: KV events are not published."""
    embeddings_folder: Path | None = None
    """Where encoders and their consumers keep embeddings (vLLM's ``ECExampleConnector``). Nothing: each encoder keeps
    them in host memory and tells its address, which consumers ask (``ECCPUConnector`` with NIXL)."""
    kv_lease_s: float = 30.0
    """How long KV is kept for a peer to pull, on the clock, whatever the speed: renewed when the peer asks for it.
    Source: vLLM 0.32's ``kv_lease_duration``."""

    def __post_init__(self) -> None:
        """Refuse what no server could be; raises ConfigError with every problem."""
        longest = min(self.profile.model.max_model_len, self.num_cache_tokens)
        if self.max_model_len == 0:
            object.__setattr__(self, "max_model_len", longest)
        ranges: dict[str, tuple[float, float]] = {
            "port": (0, 65_535),
            "speed": (SLOWEST, FASTEST),
            "max_model_len": (1, longest),
            "max_images": (0, math.inf),
            "num_answer_tokens": (1, math.inf),
            "kv_lease_s": (0.001, LONGEST_LEASE_S),
        }
        found = {name: getattr(self, name) for name in ranges}
        problems = [
            Problem(name, f"is {value}, expected a number in {ranges[name][0]:g}..{ranges[name][1]:g}")
            for name, value in found.items()
            if not ranges[name][0] <= value <= ranges[name][1] or value == math.inf
        ]
        if problems:
            raise ConfigError(problems)

    @property
    def engine_model(self) -> str:
        """The engine's ``--model`` string."""
        return self.root or self.model

    @property
    def num_cache_tokens(self) -> int:
        """Tokens that the KV cache holds; one that only encodes has no such limit."""
        if self.profile.role is Role.ENCODE:
            return self.profile.model.max_model_len
        return self.profile.num_blocks * self.profile.block_size
