"""Which requests reached the emulated server? A bounded ring, for tests and for people who debug a route."""

import hashlib
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tessera.emulator.pictures import PromptItem
from tessera.emulator.reading import Asked

MAX_RECORDS = 1024
MAX_HEADER_CHARS = 256

KEPT_HEADERS = ("x-request-id", "x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "user-agent")
KEPT_PREFIXES = ("x-tessera-", "x-llm-d-", "x-gateway-", "x-prefiller-", "x-encoder-", "x-kv-cache-")


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One generation request; digests and numbers, never the body."""

    id: int
    """Counts from 1 on this server."""
    path: str
    headers: dict[str, str]
    start: float
    """Unix seconds."""
    sha256: str = ""
    """Of the body, hexadecimal."""
    body_bytes: int = 0
    items: tuple[PromptItem, ...] = ()
    num_prompt_tokens: int = 0
    stand_in: str | None = None
    """Why token ids of a prompt are not the model's, where they are not."""
    num_cached_tokens: int | None = None
    """Prompt tokens that the KV cache held; nothing before the answer is complete."""
    num_output_tokens: int = 0
    """Tokens that were sent, over all choices."""
    first_token: float | None = None
    """Unix seconds at which the first token was about to be sent."""
    end: float | None = None
    """Unix seconds; nothing while it runs."""
    status: int | None = None
    """Of the answer; 499 where the client went away, nothing where no headers left."""
    ending: str = "running"
    """``running``, ``finished``, ``refused``, ``aborted``, ``cut``, ``failed``."""

    def read(self, body: bytes) -> None:
        """Note the body's size and digest."""
        self.body_bytes = len(body)
        self.sha256 = hashlib.sha256(body).hexdigest()

    def understood(self, asked: Asked) -> None:
        """Note what the engine makes of it."""
        self.items = tuple(item for prompt in asked.prompts for item in prompt.items)
        self.num_prompt_tokens = asked.num_prompt_tokens
        self.stand_in = next((prompt.stand_in for prompt in asked.prompts if prompt.stand_in), None)

    def sent(self, num_tokens: int) -> None:
        """Note tokens that leave."""
        if self.first_token is None:
            self.first_token = time.time()
        self.num_output_tokens += num_tokens

    def ended(self, ending: str, status: int | None) -> None:
        """Note how it ended."""
        self.ending = ending
        self.status = status
        self.end = time.time()


@dataclass(slots=True)
class RequestLog:
    """The last 1,024 generation requests, oldest first."""

    records: deque[RequestRecord] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    num_seen: int = 0

    def open(self, path: str, headers: Mapping[str, str]) -> RequestRecord:
        """A record for a request that has just come."""
        self.num_seen += 1
        kept = {
            name.lower(): value[:MAX_HEADER_CHARS]
            for name, value in headers.items()
            if name.lower() in KEPT_HEADERS or name.lower().startswith(KEPT_PREFIXES)
        }
        record = RequestRecord(id=self.num_seen, path=path[:MAX_HEADER_CHARS], headers=kept, start=time.time())
        self.records.append(record)
        return record

    def as_json(self) -> dict[str, Any]:
        """As the control route shows it."""
        return {"num_seen": self.num_seen, "requests": [asdict(record) for record in self.records]}
