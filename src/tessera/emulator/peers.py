"""What do other emulated servers keep? Asked over HTTP, which stands for vLLM's side channels."""

from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from tessera.emulator.transfer_params import Peer

TIMEOUT_S: Final = 5.0
"""Until a peer that does not answer counts as dead. vLLM's own are 20 to 60 s."""
MAX_ANSWER_BYTES: Final = 65_536


class Peers:
    """Asks peers; one that is dead, late or strange has nothing."""

    def __init__(self) -> None:
        """Nobody is connected."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

    async def num_embeds(self, peer: Peer, identifier: str) -> int | None:
        """Rows of an item's embeddings that a peer keeps."""
        shape = (await self._ask("GET", peer, f"ec/{_segment(identifier)}")).get("shape")
        rows = shape[0] if isinstance(shape, list) and shape else None
        return rows if isinstance(rows, int) else None

    async def num_kv_tokens(self, peer: Peer, request_id: str) -> int:
        """Tokens of a prompt whose KV a peer keeps, for some more time now that it was asked."""
        number = (await self._ask("GET", peer, f"kv/{_segment(request_id)}")).get("num_tokens")
        return number if isinstance(number, int) and number > 0 else 0

    async def release_kv(self, peer: Peer, request_id: str) -> None:
        """Tell a peer that its KV was pulled."""
        await self._ask("DELETE", peer, f"kv/{_segment(request_id)}")

    async def close(self) -> None:
        """Let go of all connections."""
        await self._session.close()

    async def _ask(self, method: str, peer: Peer, path: str) -> dict[str, Any]:
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        url = URL(f"http://{host}:{peer.port}/emulator/{path}", encoded=True)
        try:
            async with self._session.request(method, url, allow_redirects=False) as response:
                if response.status != 200 or (response.content_length or 0) > MAX_ANSWER_BYTES:
                    return {}
                answer = await response.json()
                return answer if isinstance(answer, dict) else {}
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return {}


def _segment(name: str) -> str:
    """A name as one segment of a path, whatever it holds: a point alone would be taken for the folder."""
    return quote(name, safe="").replace(".", "%2E")
