"""Which embeddings lie in the folder that encoders and their consumers share?"""

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Final

FILE: Final = "encoder_cache.safetensors"
MAX_FILE_BYTES: Final = 4096
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


class EmbeddingsFolder:
    """``<folder>/<identifier>/encoder_cache.safetensors``, without eviction, as vLLM's ``ECExampleConnector`` has it.

    The file is a safetensors file without a tensor: its header's metadata say how many
    rows the embeddings would have. A name that no folder should have is hashed.
    """

    def __init__(self, folder: Path) -> None:
        """``folder`` is made when the first item comes."""
        self._folder = folder

    def num_embeds(self, identifier: str) -> int | None:
        """Rows of an item's embeddings; nothing where they are not there."""
        path = self._path(identifier)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES)
            length = int.from_bytes(content[:8], "little")
            return int(json.loads(content[8 : 8 + length])["__metadata__"]["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, identifier: str, num_embeds: int) -> None:
        """Keep an item's embeddings: whole or not at all, for whoever looks meanwhile."""
        path = self._path(identifier)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"__metadata__": {"rows": str(num_embeds)}}).encode()
        half = path.with_suffix(".half")
        half.write_bytes(len(header).to_bytes(8, "little") + header)
        half.replace(path)

    def _path(self, identifier: str) -> Path:
        is_plain = _PLAIN_NAME.fullmatch(identifier) is not None
        name = identifier if is_plain else f"hashed-{blake2b(identifier.encode(), digest_size=16).hexdigest()}"
        return self._folder / name / FILE
