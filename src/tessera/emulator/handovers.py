"""What have other servers done of a request, and what does this one tell of what it has done?"""

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Any

from tessera.emulator.driver import Driver
from tessera.emulator.embeddings_folder import EmbeddingsFolder
from tessera.emulator.peers import Peers
from tessera.emulator.pictures import PromptItem
from tessera.emulator.prompts import EnginePrompt
from tessera.emulator.reading import Asked
from tessera.emulator.refusals import Refusal
from tessera.emulator.settings import EmulatorSettings
from tessera.emulator.transfer_params import Peer, RemoteKV
from tessera.engine.requests import Handover
from tessera.engine.roles import Role

_BYTES_PER_NUMBER = 2
"""bf16."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a request gets from others."""

    handover: Handover
    remote_kv: RemoteKV | None
    """Of a peer that has it still."""
    is_aborted_if_lost: bool
    """Whether a picture without content of which nobody has embeddings ends the request; else it ends the process."""


class Handovers:
    """One server's dealings with its peers.

    A decode whose KV cannot be had is computed here, as vLLM does with
    ``kv_load_failure_policy: recompute``; vLLM's default, ``fail``, would end the request.
    """

    def __init__(self, settings: EmulatorSettings, driver: Driver, own: Peer) -> None:
        """``own`` is where peers find this server."""
        self._settings = settings
        self._driver = driver
        self._own = own
        self._peers = Peers()
        self._folder = EmbeddingsFolder(settings.embeddings_folder) if settings.embeddings_folder else None
        self._engine_id = str(uuid.uuid4())
        self._telling: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Tell nobody anything any more."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
        await self._peers.close()

    async def take(self, asked: Asked) -> Taken:
        """Ask the peers that a request names for what they have of it.

        Raises:
            Refusal: stored embeddings are not those of the picture that was sent.
        """
        role, transfer = self._settings.profile.role, asked.transfer
        items = {item.identifier: item for prompt in asked.prompts for item in prompt.items}
        bare = frozenset(identifier for identifier, item in items.items() if item.is_bare)
        fetched: frozenset[str] = frozenset()
        if role.takes_embeddings and items:
            found = await asyncio.gather(*(self._is_stored(item, asked) for item in items.values()))
            fetched = frozenset(identifier for identifier, there in zip(items, found, strict=True) if there)
        num_tokens, kv = 0, transfer.remote_kv if role.transfers_kv and len(asked.prompts) == 1 else None
        if kv is not None:
            num_tokens = await self._peers.num_kv_tokens(kv.peer, kv.request_id)
        keeps_kv = role.transfers_kv and transfer.keeps_kv and asked.finish_reason == "length"
        handover = Handover(
            fetched=fetched,
            bare=bare,
            num_remote_tokens=num_tokens,
            kv_lease_s=self._settings.kv_lease_s * self._settings.speed if keeps_kv else None,
        )
        is_announced = self._folder is None and all(transfer.announced.get(each) for each in bare)
        return Taken(handover, kv if num_tokens else None, is_announced)

    def pulled(self, kv: RemoteKV) -> None:
        """Tell the peer that its KV is not needed any more."""
        task = asyncio.get_running_loop().create_task(self._peers.release_kv(kv.peer, kv.request_id))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def num_stored_embeds(self, identifier: str) -> int | None:
        """Rows of an item's embeddings that this server keeps, or the shared folder."""
        if self._folder is not None:
            return self._folder.num_embeds(identifier)
        num_bytes = self._driver.stored_embeddings_bytes(identifier)
        return None if num_bytes is None else num_bytes // self._settings.profile.model.embed_bytes

    def description(self, identifier: str, num_embeds: int) -> dict[str, Any]:
        """An item's embeddings, for a peer that asks."""
        embed_bytes = self._settings.profile.model.embed_bytes
        shape = [num_embeds, embed_bytes // _BYTES_PER_NUMBER]
        return {"identifier": identifier, "size_bytes": num_embeds * embed_bytes, "shape": shape}

    def announce(self, prompts: tuple[EnginePrompt, ...]) -> dict[str, Any] | None:
        """``ec_transfer_params`` of an encoder's answer; nothing without pictures."""
        if self._settings.profile.role is not Role.ENCODE:
            return None
        entries: dict[str, Any] = {}
        items = [item for prompt in prompts for item in prompt.items]
        for index, item in enumerate(items):
            if item.identifier in entries:
                entries[item.identifier]["item_indices"].append(index)
            else:
                entries[item.identifier] = {"item_indices": [index], **self._entry(item)}
        return entries or None

    def kept(self, asked: Asked, request_id: str, num_cached_tokens: int) -> dict[str, Any] | None:
        """``kv_transfer_params`` of a prefill's answer; nothing where no KV is kept for it."""
        num_tokens = self._driver.renew_lease(request_id, self._settings.kv_lease_s) if asked.transfer.keeps_kv else 0
        if not num_tokens:
            return None
        num_blocks = -(-num_tokens // self._settings.profile.block_size)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(range(1, num_blocks + 1))],
            "remote_engine_id": self._engine_id,
            "remote_request_id": request_id,
            "remote_host": self._own.host,
            "remote_port": self._own.port,
            "tp_size": self._settings.profile.num_gpus,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": num_tokens,
            "remote_blocks_expiry_time": time.time() + self._settings.kv_lease_s,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": num_cached_tokens,
        }

    def _entry(self, item: PromptItem) -> dict[str, Any]:
        metadata = {"image_grid_thw": list(item.grid)} if item.grid else {}
        if self._folder is not None:
            self._folder.put(item.identifier, item.num_embeds)
            return {"metadata": metadata}
        if self.num_stored_embeds(item.identifier) is None:
            return {"metadata": {}}
        shown = self.description(item.identifier, item.num_embeds)
        address = {"peer_host": self._own.host, "peer_port": self._own.port}
        return {"metadata": metadata, **address, "size_bytes": shown["size_bytes"], "shape": shown["shape"]}

    async def _is_stored(self, item: PromptItem, asked: Asked) -> bool:
        """Whether an item's embeddings can be fetched."""
        num_embeds = self.num_stored_embeds(item.identifier)
        peer = asked.transfer.announced.get(item.identifier)
        if num_embeds is None and self._folder is None and peer is not None:
            num_embeds = await self._peers.num_embeds(peer, item.identifier)
        if num_embeds is not None and num_embeds != item.num_embeds:
            raise Refusal("Internal server error", status=500)
        return num_embeds is not None
