"""What do vLLM's answers look like? JSON bodies and server-sent events, field for field.

Chat shapes follow recorded answers of vLLM 0.32 started with
``--enable-prompt-tokens-details``; those of text completions follow OpenAI's.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tessera.core.rng import SeededRng
from tessera.emulator.reading import Asked
from tessera.emulator.tickets import NewToken

FINGERPRINT = "vllm-0.32.0-emulated"
DONE = b"data: [DONE]\n\n"

SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")
MAX_SYLLABLES = 3


class Words:
    """An endless text of pseudo-words, one a token; the same for the same seed text."""

    def __init__(self, seed: str) -> None:
        self._rng = SeededRng(0, seed)

    def next(self) -> str:
        """The next token's text: a blank and one to three syllables."""
        num_syllables = 1 + self._rng.below(MAX_SYLLABLES)
        return " " + "".join(SYLLABLES[self._rng.below(len(SYLLABLES))] for _ in range(num_syllables))


@dataclass(slots=True, kw_only=True)
class Answer(ABC):
    """The answer to one request, made token by token."""

    asked: Asked
    id: str
    model: str
    created: int
    """Unix seconds."""
    words: tuple[Words, ...]
    """One text for each choice of each prompt."""
    block_size: int
    """Tokens a KV block of the engine holds."""
    kv_transfer_params: dict[str, Any] | None = None
    """Where the prompt's KV is kept; not told in streams."""
    ec_transfer_params: dict[str, Any] | None = None
    """Where embeddings are kept; not told in streams."""

    @property
    def num_tokens(self) -> int:
        """Events of the answer, over all choices: one for each of its tokens."""
        return self.asked.num_output_tokens * len(self.words)

    @property
    def num_completion_tokens(self) -> int:
        """Answer tokens over all choices."""
        return self.num_tokens

    chunk_object = ""
    whole_object = ""

    def head(self) -> bytes:
        """Events before the first token."""
        return b""

    def token(self, token: NewToken, *, is_last: bool) -> bytes:
        """The event of one token; ``is_last`` where no token of any choice follows."""
        text = self.words[token.choice].next()
        chunk = self._chunk([self._chunk_choice(token, text)], num_tokens=token.position + 1)
        if is_last and not self.asked.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return _event(chunk)

    def tail(self, num_cached_tokens: int) -> bytes:
        """The usage event, if it was asked for, and the end mark; ``num_cached_tokens`` of all prompts."""
        if not self.asked.include_usage:
            return DONE
        usage = self._counts(self.num_completion_tokens)
        usage["prompt_tokens_details"] = self._prompt_details(num_cached_tokens)
        chunk = {**self._envelope(self.chunk_object), "choices": [], "usage": usage, "system_fingerprint": FINGERPRINT}
        return _event(chunk) + DONE

    def whole(self, num_cached_tokens: int) -> bytes:
        """The JSON body of an answer that is not streamed; ``num_cached_tokens`` of all prompts."""
        choices = [self._whole_choice(index, self._text(words)) for index, words in enumerate(self.words)]
        usage: dict[str, Any] = self._counts(self.num_completion_tokens)
        usage["prompt_tokens_details"] = self._prompt_details(num_cached_tokens)
        usage["completion_tokens_details"] = None
        return msgspec.json.encode(
            {
                **self._envelope(self.whole_object),
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": usage,
                **self._whole_rest(),
            }
        )

    def _text(self, words: Words) -> str:
        return "".join(words.next() for _ in range(self.asked.num_output_tokens))

    def _transfer_params(self) -> dict[str, Any]:
        return {"kv_transfer_params": self.kv_transfer_params, "ec_transfer_params": self.ec_transfer_params}

    @abstractmethod
    def _chunk_choice(self, token: NewToken, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _whole_choice(self, index: int, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _whole_rest(self) -> dict[str, Any]: ...

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, choices: Sequence[dict[str, Any]], *, num_tokens: int) -> dict[str, Any]:
        chunk = {**self._envelope(self.chunk_object), "choices": choices}
        if self.asked.include_usage and self.asked.continuous_usage:
            chunk["usage"] = {**self._counts(num_tokens), "completion_tokens_details": None}
        return chunk

    def _counts(self, num_output_tokens: int) -> dict[str, Any]:
        num_prompt_tokens = self.asked.num_prompt_tokens
        total = num_prompt_tokens + num_output_tokens
        return {"prompt_tokens": num_prompt_tokens, "total_tokens": total, "completion_tokens": num_output_tokens}

    def _prompt_details(self, num_cached_tokens: int) -> dict[str, Any] | None:
        num_created = self.asked.num_block_tokens(self.block_size) - num_cached_tokens
        details: dict[str, Any] = {"cached_tokens": num_cached_tokens, "created_cache_tokens": num_created}
        if num_media_tokens := sum(prompt.num_media_tokens for prompt in self.asked.prompts):
            details["multimodal_tokens"] = {"image": num_media_tokens}
        return details


class ChatAnswer(Answer):
    """A chat completion."""

    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def head(self) -> bytes:
        """One event for each choice that says who speaks; vLLM sends it with the first token."""
        events = []
        for index in range(len(self.words)):
            delta = {"role": "assistant", "content": ""}
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            chunk = self._chunk([choice], num_tokens=0)
            events.append(_event({**chunk, "prompt_token_ids": None, "prompt_text": None}))
        return b"".join(events)

    def _chunk_choice(self, token: NewToken, text: str) -> dict[str, Any]:
        choice = {"index": token.choice, "delta": {"content": text}, "logprobs": None}
        choice["finish_reason"] = token.finish_reason
        if token.finish_reason:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        return choice

    def _whole_choice(self, index: int, text: str) -> dict[str, Any]:
        unused = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, **unused},
            "logprobs": None,
            "finish_reason": self.asked.finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }

    def _whole_rest(self) -> dict[str, Any]:
        prompt = ("prompt_logprobs", "prompt_token_ids", "prompt_text")
        return {**dict.fromkeys(prompt), **self._transfer_params(), "metrics": None}


class CompletionAnswer(Answer):
    """A text completion."""

    chunk_object = "text_completion"
    whole_object = "text_completion"

    def _chunk_choice(self, token: NewToken, text: str) -> dict[str, Any]:
        return {
            "index": token.choice,
            "text": text,
            "logprobs": None,
            "finish_reason": token.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }

    def _whole_choice(self, index: int, text: str) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": self.asked.finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }

    def _whole_rest(self) -> dict[str, Any]:
        return {**self._transfer_params(), "metrics": None}


class EncodeAnswer(Answer):
    """What a server that only encodes answers: no text, and where the embeddings are."""

    @property
    def num_completion_tokens(self) -> int:
        """None."""
        return 0

    def token(self, token: NewToken, *, is_last: bool) -> bytes:
        """No event: a stream ends behind its head."""
        return b""

    def _text(self, words: Words) -> str:
        return ""

    def _prompt_details(self, num_cached_tokens: int) -> dict[str, Any] | None:
        return None


class EncodeChatAnswer(EncodeAnswer, ChatAnswer):
    """To a chat completion."""


class EncodeCompletionAnswer(EncodeAnswer, CompletionAnswer):
    """To a text completion."""


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
