"""What will the engine make of a request, and what does it hold of it already, as the router sees it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tessera.config.load import load_data
from tessera.core.facts import UNKNOWN_LOAD, EndpointState, FleetView, Joined, PrefixMatch
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm
from tessera.core.matching.kv_wire import decode_batch
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer, block_keys
from tessera.core.rng import SeededRng
from tessera.core.types import Endpoint

from .case import Case
from .engine import BLOCK_SIZE, HASH_SEED

AT: Final = 0.0
"""The clock stands still: nothing of this is a matter of time."""
ENDPOINT: Final = Endpoint(address="127.0.0.1", port=1)
EXACT: Final = "precise-prefix-cache-producer"


@dataclass(frozen=True)
class Prediction:
    """The prompt's tokens and blocks, or why they cannot be known."""

    token_ids: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    """Of every full block."""
    num_held: int = 0
    """Tokens of it that the engine is believed to hold already."""
    reason: str | None = None


class Predictor:
    """A router that knows the engine by its configuration and by its events."""

    def __init__(self, model: Path) -> None:
        loaded = load_data(_configuration(model))
        self._router, self._profile = loaded.router, loaded.profile
        self._memo = _Memo()
        self._hasher = BlockHasher(HashAlgorithm.SHA256, HASH_SEED)
        self._router.observe(Joined(at=AT, endpoint=ENDPOINT))

    def predict(self, case: Case) -> Prediction:
        """What is known of a client's request before it is sent."""
        headers = {":path": case.path, "content-type": "application/json"}
        request, draft = self._router.read(case.body, headers, self._profile, request_id=case.name, at=AT, wall_at=AT)
        prompt = self._router.tokenise(request, draft, self._memo)
        if prompt.reason is not None:
            return Prediction(reason=prompt.reason)
        view = FleetView((EndpointState(ENDPOINT, UNKNOWN_LOAD),))
        decision = self._router.choose(request, view, AT, SeededRng(0, case.name), prompt)
        match = decision.stages[0].candidates[0].fact(PrefixMatch, EXACT)
        assert match is not None
        assert match.is_exact
        keys = block_keys(decision.priced, BLOCK_SIZE, self._hasher)
        return Prediction(prompt.token_ids, keys, match.num_matched_tokens)

    def observe(self, payload: bytes) -> None:
        """Take in a message of the engine's events."""
        for event in decode_batch(payload, at=AT, endpoint_id=ENDPOINT.id).events:
            self._router.observe(event)

    @property
    def hash_algorithm(self) -> HashAlgorithm | None:
        """What the engine was found to use."""
        (producer,) = (each for each in self._router.producers if isinstance(each, PrecisePrefixCacheProducer))
        return producer.hash_algorithm


class _Memo:
    """Remembers the ids of every text."""

    def __init__(self) -> None:
        self._ids: dict[bytes, tuple[int, ...]] = {}

    def get(self, digest: bytes) -> Sequence[int] | None:
        return self._ids.get(digest)

    def put(self, digest: bytes, token_ids: Sequence[int]) -> None:
        self._ids[digest] = tuple(token_ids)


def _configuration(model: Path) -> dict[str, Any]:
    producer = {"hashSeed": HASH_SEED, "tokenProcessorConfig": {"blockSizeTokens": BLOCK_SIZE}}
    scorer = {"prefixMatchInfoProducerName": EXACT}
    estimate = {"model": {"path": str(model), "engineModel": str(model)}}
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "token-producer", "parameters": {"estimate": estimate, "tokenizer": {"path": str(model)}}},
            {"type": EXACT, "parameters": producer},
            {"type": "prefix-cache-scorer", "parameters": scorer},
        ],
        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "prefix-cache-scorer"}]}],
    }
