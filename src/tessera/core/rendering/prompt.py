"""Which token ids will the engine make of what a dialect saw? All of them for certain, or a reason why not."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from tessera.core.draft import Draft, DraftChat, DraftMedia, DraftPart, DraftText, DraftTokens, Undrafted
from tessera.core.family import Placeholder
from tessera.core.media.digests import digest_128
from tessera.core.parts import Modality
from tessera.core.rendering.chat_template import RESERVED, ChatTemplate
from tessera.core.rendering.conversation import conversation, tool_definitions
from tessera.core.rendering.placeholders import check_exact, expand
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.tokenizer import TextTokenizer
from tessera.core.types import Basis, ItemSpan, PricedItem

MAX_PROMPT_CHARS: Final = 4 << 20
"""Characters of a prompt that is tokenised, and of what it is rendered from."""
MAX_PROMPT_TOKENS: Final = 1 << 20
"""Tokens of a prompt, media expanded: a thousand pictures may say of themselves that they are 16 million."""
MIN_REMEMBERED_CHARS: Final = 16
"""Shorter pieces are tokenised anew: that costs no more than to look them up."""
MAX_TOKEN_ID: Final = (1 << 31) - 1
_NO_SIZE: Final[tuple[int, ...]] = ()
"""What is remembered of a uuid that stood for media of several sizes."""
_EFFORTS: Final = ("none", "low", "medium", "high", "xhigh", "max")


class TokenMemo(Protocol):
    """A bounded cache from a text's 128-bit digest to its token ids; holds no text; thread-safe."""

    def get(self, digest: bytes) -> Sequence[int] | None:
        """The ids of that text, if they are remembered."""

    def put(self, digest: bytes, token_ids: Sequence[int]) -> None:
        """Remember the ids of that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """The prompt as the engine will see it, or why that is not known."""

    token_ids: tuple[int, ...] = field(default=(), repr=False)
    """Media expanded."""
    spans: tuple[ItemSpan, ...] = ()
    """Where the items lie, prompt order."""
    items: tuple[PricedItem, ...] = ()
    """The items by the model's own rule, nothing learned."""
    block_keys: Mapping[Hashable, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """What producers computed of the ids."""
    reason: str | None = None
    """Why there are none."""


@dataclass(frozen=True, slots=True)
class PromptRenderer:
    """The served model's way from a request to token ids. Immutable and thread-safe."""

    tokenizer: TextTokenizer
    template: ChatTemplate | None = None
    """For conversations without tools."""
    tool_template: ChatTemplate | None = None
    """For conversations with tools; the engine takes the processor's template without and the tokenizer's with them."""
    placeholders: Mapping[Modality, Placeholder] = field(default_factory=dict)
    """How the family writes its media, of the modalities of which that is known."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The engine's ``--default-chat-template-kwargs``."""
    wraps_parts: bool | None = None
    """Whether contents are lists of parts (``--chat-template-content-format``); nothing: by the template."""

    def tokens(self, draft: Draft, items: Sequence[PricedItem], memo: TokenMemo, wall_at: float) -> PromptTokens:
        """The prompt's token ids, media expanded, where the items lie in them, and what each of them weighs.

        Args:
            draft: what the dialect saw.
            items: the media of the request by the model's own rule, prompt order.
            memo: what earlier texts were tokenised to.
            wall_at: Unix seconds, for templates that write the date.

        Raises:
            Unrendered: the ids cannot be told for certain.
        """
        # First: an engine keeps what comes under a uuid, whether the rest of the prompt can be told or not.
        items = _sized(items, memo)
        if draft.unrendered is not None:
            raise Unrendered(Reason(draft.unrendered))
        if len(draft.prompts) != 1:
            raise Unrendered(Reason.SEVERAL_PROMPTS if draft.prompts else Reason.DIALECT)
        layouts = self._layouts(items)
        check_exact(items, layouts)
        (prompt,) = draft.prompts
        _check_length(prompt, items)
        spans: tuple[ItemSpan, ...] = ()
        if draft.chat is not None:
            text = self.text(_drafted(draft.chat), wall_at)
            encoded = self._encoded(text, memo, add_special_tokens=draft.adds_special_tokens)
            ids, spans = expand(encoded, items, layouts)
        elif len(prompt) == 1 and isinstance(prompt[0], DraftText) and isinstance(prompt[0].text, str):
            ids = tuple(self._encoded(prompt[0].text, memo, add_special_tokens=draft.adds_special_tokens))
        elif any(isinstance(part, DraftTokens) for part in prompt):
            ids, spans = _given(prompt)
        else:
            raise Unrendered(Reason.DIALECT)
        if len(ids) > MAX_PROMPT_TOKENS:
            raise Unrendered(Reason.TEXT)
        return PromptTokens(token_ids=ids, spans=spans, items=tuple(items))

    def _layouts(self, items: Sequence[PricedItem]) -> dict[Modality, int]:
        """The placeholder's token id by modality, of the modalities that the request has."""
        found = dict[Modality, int]()
        for modality in {each.item.modality for each in items} & self.placeholders.keys():
            if (token_id := self.tokenizer.id_of(self.placeholders[modality].token)) is not None:
                found[modality] = token_id
        return found

    def text(self, chat: DraftChat, wall_at: float) -> str:
        """The prompt's text, one placeholder for each media item.

        Raises:
            Unrendered: it cannot be told for certain.
        """
        if chat.chat_template is not None:
            raise Unrendered(Reason.TEMPLATE_IN_REQUEST)
        tools = tool_definitions(chat.tools)
        template = self.template if tools is None else self.tool_template
        if template is None:
            raise Unrendered(Reason.NO_TEMPLATE)
        messages = self._conversation(chat, template)
        continues = chat.continue_final_message is True
        adds_prompt = chat.add_generation_prompt is not False
        if continues and adds_prompt:
            raise Unrendered(Reason.OPTION)
        return template.render(
            messages,
            tools=tools,
            documents=chat.documents,
            add_generation_prompt=adds_prompt,
            continues=continues,
            kwargs=self._kwargs(chat),
            wall_at=wall_at,
        )

    def _conversation(self, chat: DraftChat, template: ChatTemplate) -> list[dict[str, Any]]:
        return conversation(
            _systems_in_front(chat.messages)
            if chat.merges_systems and self._refuses_later_systems()
            else chat.messages,
            wraps_parts=template.wraps_parts if self.wraps_parts is None else self.wraps_parts,
            placeholders={modality: each.text for modality, each in self.placeholders.items()},
            knows_developer=template.knows_developer,
            orders_calls=chat.has_ordered_calls,
        )

    def _refuses_later_systems(self) -> bool:
        """Whether one of the templates does: the engine goes by both, whichever the request asks for."""
        return any(each is None or each.refuses_later_systems for each in (self.template, self.tool_template))

    def _effort_without_thinking(self) -> str:
        """What the engine takes for no effort: ``low`` where the template knows no ``none``, or makes nothing of it."""
        prompts = {effort: self._greeting(effort) for effort in _EFFORTS}
        return "low" if prompts.pop("none") in (None, *prompts.values()) else "none"

    def _greeting(self, effort: str) -> str | None:
        """A prompt by which efforts are compared; nothing where the template fails on this one."""
        greeting = DraftChat(messages=[{"role": "user", "content": "Hi"}], reasoning_effort=effort)
        try:
            return self.text(greeting, 0.0)
        except Unrendered:
            return None

    def _kwargs(self, chat: DraftChat) -> dict[str, Any]:
        """The template's further arguments: the server's, then the request's; ``None`` and ``auto`` change nothing."""
        reasoning_effort = self._effort_without_thinking() if chat.is_thinking_disabled else chat.reasoning_effort
        asked = chat.chat_template_kwargs if chat.chat_template_kwargs is not None else {}
        if not isinstance(asked, dict) or asked.keys() & RESERVED - {"add_generation_prompt", "continue_final_message"}:
            raise Unrendered(Reason.OPTION)
        effort = {} if reasoning_effort is None else {"reasoning_effort": reasoning_effort}
        if effort and "enable_thinking" not in asked:
            effort["enable_thinking"] = reasoning_effort != "none"
        return dict(self.template_kwargs) | {
            name: value for name, value in {**asked, **effort}.items() if value is not None and value != "auto"
        }

    def _encoded(self, text: str, memo: TokenMemo, *, add_special_tokens: bool = False) -> list[int]:
        if len(text) > MAX_PROMPT_CHARS:
            raise Unrendered(Reason.TEXT)
        if add_special_tokens and self.tokenizer.adds_special_tokens:
            return list(self._ids(text, memo, add_special_tokens=True))
        ids: list[int] = []
        for piece in self.tokenizer.pieces(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._ids(piece, memo)
        return ids

    def _ids(self, text: str, memo: TokenMemo, *, add_special_tokens: bool = False) -> Sequence[int]:
        if len(text) < MIN_REMEMBERED_CHARS:
            return self._fresh(text, add_special_tokens=add_special_tokens)
        digest = digest_128(text.encode("utf-8", "surrogatepass") + (b"\x01" if add_special_tokens else b"\x00"))
        known = memo.get(digest)
        if known is None:
            known = self._fresh(text, add_special_tokens=add_special_tokens)
            memo.put(digest, known)
        return known

    def _fresh(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if ids is None:
            raise Unrendered(Reason.TEXT)
        return ids


def _drafted(make: Callable[[], DraftChat]) -> DraftChat:
    try:
        return make()
    except Undrafted as undrafted:
        raise Unrendered(Reason(undrafted.word)) from None


def _systems_in_front(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the texts of all systems as the first of them."""
    texts = [each["content"] for each in messages if each["role"] == "system"]
    system = [{"role": "system", "content": "".join(texts)}] if texts else []
    return [*system, *(each for each in messages if each["role"] != "system")]


def _check_length(prompt: Sequence[DraftPart], items: Sequence[PricedItem]) -> None:
    """Raises Unrendered where a prompt is too long, before anything is made of it."""
    num_chars = sum(len(part.text) for part in prompt if isinstance(part, DraftText))
    num_tokens = sum(len(part.token_ids) for part in prompt if isinstance(part, DraftTokens))
    num_tokens += sum(each.num_tokens for each in items)
    if num_chars > MAX_PROMPT_CHARS or num_tokens > MAX_PROMPT_TOKENS:
        raise Unrendered(Reason.TEXT)


def _sized(items: Sequence[PricedItem], memo: TokenMemo) -> list[PricedItem]:
    """The items, those that are only a uuid as large as the media were that came under it.

    Raises:
        Unrendered: media of several sizes came under one uuid; which of them an engine has kept is not known.
    """
    return [_as_remembered(each, memo) if each.item.uuid is not None else each for each in items]


def _as_remembered(priced: PricedItem, memo: TokenMemo) -> PricedItem:
    if priced.item.num_tokens_declared is not None:
        return priced
    # Bytes that no text has, so that a text cannot pass for a size.
    key = digest_128(b"\xff" + f"{priced.item.modality}:{priced.identifier}".encode("utf-8", "surrogatepass"))
    known = memo.get(key)
    if priced.item.has_content:
        counts = (priced.num_tokens, priced.num_embeds, priced.num_wrapper_tokens)
        size = counts if priced.basis is Basis.EXACT else _NO_SIZE
        if known is None and size:
            memo.put(key, size)
        elif known is not None and tuple(known) != size:
            memo.put(key, _NO_SIZE)
            raise Unrendered(Reason.ITEM_SIZE)
        return priced
    if not known:
        return priced
    num_tokens, num_embeds, num_wrapper_tokens = known
    return replace(
        priced,
        num_tokens=num_tokens,
        num_embeds=num_embeds,
        num_wrapper_tokens=num_wrapper_tokens,
        rule_basis=Basis.EXACT,
        size_basis=Basis.LEARNED,
        reason="learned-uuid",
    )


def _given(prompt: Sequence[DraftPart]) -> tuple[tuple[int, ...], tuple[ItemSpan, ...]]:
    """The ids that the client sent itself, with the spans of the items that stand in them."""
    ids: list[int] = []
    spans: list[ItemSpan] = []
    index = 0
    for part in prompt:
        match part:
            case DraftTokens(token_ids=given):
                ids += given
            case DraftMedia(placeholder_ids=given) if given:
                spans.append(ItemSpan(index, len(ids), len(given)))
                ids += given
                index += 1
            case _:
                raise Unrendered(Reason.DIALECT)
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_TOKEN_ID:
        raise Unrendered(Reason.TOKEN_ID)
    return tuple(ids), tuple(spans)
