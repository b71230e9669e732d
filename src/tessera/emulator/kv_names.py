"""What would vLLM publish of the KV blocks that the engine stores and evicts? Their hashes, from token ids."""

from collections.abc import Iterator, Mapping, Sequence

from tessera.core.facts import ExtraKeysOfBlock, KVCleared, KVEvent, KVRemoved, KVStored
from tessera.core.matching.block_keys import BlockHasher, ExtraKeys, MediaSpan, block_key, extra_keys_of
from tessera.core.rng import SeededRng
from tessera.emulator.prompts import FIRST_ANSWER_ID, EnginePrompt
from tessera.engine import events as engine
from tessera.engine.requests import EngineRequest

FULL_ATTENTION = "full_attention"
_NUM_ANSWER_IDS = 1 << 31


class BlockNames:
    """The published events of one engine.

    Answers have tokens that no prompt has, since the model of the engine takes it that nobody
    asks for their blocks again. Memory: the hash of each block that the engine holds, and the
    token ids of the requests that are expected.
    """

    def __init__(self, hasher: BlockHasher, block_size: int) -> None:
        self._hasher = hasher
        self._block_size = block_size
        self._hash_of: dict[int, int] = {}
        """By the engine's key of a block."""
        self._chains: dict[str, _Chain] = {}

    def __len__(self) -> int:
        """Blocks that have a name."""
        return len(self._hash_of)

    def expect(self, request: EngineRequest, prompt: EnginePrompt) -> None:
        """A request whose blocks the engine may store from now on."""
        self._chains[request.request_id] = _Chain(request, prompt, self._hasher, self._block_size)

    def forget(self, request_id: str) -> None:
        """The engine stores no more of a request."""
        del self._chains[request_id]

    def published(self, told: Sequence[engine.KVEvent]) -> list[KVEvent]:
        """The events as vLLM publishes them: consecutive blocks in one, each eviction by itself."""
        found: list[KVEvent] = []
        for events in _joined(told):
            first = events[0]
            if isinstance(first, engine.BlocksStored):
                keys = [key for event in events if isinstance(event, engine.BlocksStored) for key in event.keys]
                stored = self._chains[first.request_id].stored(first.choice, first.first_block, len(keys))
                self._hash_of.update(zip(keys, stored.block_hashes, strict=True))
                found.append(stored)
            elif isinstance(first, engine.BlocksRemoved):
                hashes = [self._hash_of.pop(key) for key in first.keys]
                found += [KVRemoved(at=0.0, endpoint_id="", block_hashes=(each,), group=0) for each in hashes]
            else:
                self._hash_of.clear()
                found.append(KVCleared(at=0.0, endpoint_id=""))
        return found


class _Chain:
    """The blocks of one request."""

    def __init__(self, request: EngineRequest, prompt: EnginePrompt, hasher: BlockHasher, block_size: int) -> None:
        num_blocks = (prompt.num_tokens + request.num_output_tokens) // block_size
        places = zip(prompt.items, prompt.offsets, strict=True)
        spans = [MediaSpan(item.identifier, offset, item.num_tokens) for item, offset in places]
        self._extra_keys = extra_keys_of(spans, num_blocks, block_size, cache_salt=prompt.cache_salt)
        self._request_id = request.request_id
        self._prompt = prompt
        self._hasher = hasher
        self._block_size = block_size
        self._answers: dict[int, _Answer] = {}

    def stored(self, choice: int, first_block: int, num_blocks: int) -> KVStored:
        """The event of these blocks."""
        answer = self._answers.get(choice)
        if answer is None:
            answer = self._answers[choice] = _Answer(f"{self._request_id}:{choice}")
        end_block = first_block + num_blocks
        self._hash(answer, end_block)
        hashes = [block_key(each) for each in answer.hashes[max(0, first_block - 1) : end_block]]
        parent = hashes.pop(0) if first_block else None
        return KVStored(
            at=0.0,
            endpoint_id="",
            block_hashes=tuple(hashes),
            parent_block_hash=parent,
            token_ids=self._ids(answer, first_block, end_block),
            block_size=self._block_size,
            extra_keys=tuple(_published(self._extra_keys.get(block)) for block in range(first_block, end_block)),
            group=0,
            attention=FULL_ATTENTION,
        )

    def _hash(self, answer: "_Answer", end_block: int) -> None:
        """See to it that the blocks before ``end_block`` have hashes."""
        first_block = len(answer.hashes)
        if end_block <= first_block:
            return
        extra_keys: Mapping[int, ExtraKeys] = {
            block - first_block: keys for block, keys in self._extra_keys.items() if first_block <= block < end_block
        }
        parent = answer.hashes[-1] if answer.hashes else None
        ids = self._ids(answer, first_block, end_block)
        answer.hashes += self._hasher.hashes(ids, self._block_size, extra_keys, parent)

    def _ids(self, answer: "_Answer", first_block: int, end_block: int) -> tuple[int, ...]:
        start, end = first_block * self._block_size, end_block * self._block_size
        num_prompt_tokens = self._prompt.num_tokens
        answer.extend(end - num_prompt_tokens)
        return (
            *self._prompt.token_ids[start:end],
            *answer.ids[max(0, start - num_prompt_tokens) : max(0, end - num_prompt_tokens)],
        )


class _Answer:
    """What one choice adds to the prompt: its tokens, and with the prompt's, the block hashes."""

    def __init__(self, seed: str) -> None:
        self.ids: list[int] = []
        self.hashes: list[bytes] = []
        """Of the prompt's blocks and the answer's."""
        self._rng = SeededRng(0, seed)

    def extend(self, num_ids: int) -> None:
        """Have at least so many tokens."""
        while len(self.ids) < num_ids:
            self.ids.append(FIRST_ANSWER_ID + self._rng.below(_NUM_ANSWER_IDS))


def _joined(told: Sequence[engine.KVEvent]) -> Iterator[list[engine.KVEvent]]:
    """The events by themselves, but blocks that follow on each other in one request's prompt together.

    What is evicted for some of them comes before all of them, as in vLLM.
    """
    run: list[engine.KVEvent] = []
    for event in told:
        if isinstance(event, engine.BlocksStored):
            if run and not _follows(run[-1], event):
                yield run
                run = []
            run.append(event)
        elif isinstance(event, engine.BlocksRemoved) and not any(_overlap(each, event) for each in run):
            yield [event]
        else:
            if run:
                yield run
                run = []
            yield [event]
    if run:
        yield run


def _follows(before: engine.KVEvent, event: engine.BlocksStored) -> bool:
    return isinstance(before, engine.BlocksStored) and (
        (before.request_id, before.choice, before.at, before.first_block + len(before.keys))
        == (event.request_id, event.choice, event.at, event.first_block)
    )


def _overlap(stored: engine.KVEvent, removed: engine.BlocksRemoved) -> bool:
    return (
        isinstance(stored, engine.BlocksStored)
        and stored.keys.start < removed.keys.stop
        and removed.keys.start < stored.keys.stop
    )


def _published(keys: ExtraKeys | None) -> ExtraKeysOfBlock | None:
    """A block's extra keys without their tags."""
    if keys is None:
        return None
    return tuple((key[1], key[2]) if key[0] == "mm" else key[1] for key in keys)
