"""What does the engine keep of a request while it has it?"""

from typing import NamedTuple

from tessera.engine.kv_cache import Holding, Link, chain_of
from tessera.engine.requests import EngineRequest, MediaSegment


class Span(NamedTuple):
    """Where a media item lies in the prompt."""

    start: int
    """Its first token."""
    end: int
    """Behind its last token."""
    item: MediaSegment


class Sequence:
    """One choice of a request: what the scheduler admits, computes and preempts."""

    __slots__ = (
        "finish_step",
        "held_items",
        "holding",
        "is_decoding",
        "next_span",
        "num_cached",
        "num_computed",
        "num_pulled",
        "num_remote",
        "num_target",
        "num_tokens",
        "order",
        "spans",
        "ticket",
    )

    def __init__(self, ticket: "Ticket", order: int, chain: list[Link], choice: int) -> None:
        """A sequence of which nothing is computed.

        Args:
            ticket: its request.
            order: unlike that of any other sequence, rising with arrival.
            chain: of the prompt.
            choice: which of the request's choices.
        """
        request = ticket.request
        self.ticket = ticket
        self.order = order
        self.spans = ticket.spans
        self.num_tokens = request.num_prompt_tokens
        """Prompt and output known so far. While it decodes, the value of the step at which it began to
        (``Decodes`` knows the rest)."""
        self.num_target = request.num_prompt_tokens + request.num_output_tokens
        self.num_computed = 0
        """Tokens in the KV cache; while it decodes, one less than there are."""
        self.num_remote = min(request.handover.num_remote_tokens, request.num_prompt_tokens - 1)
        """First tokens whose KV a peer keeps for it; 0 once it was pulled. The last one is computed to sample."""
        self.holding = Holding((request.request_id, choice), chain)
        self.next_span = 0
        """The first span that is not wholly computed."""
        self.held_items: dict[str, None] = {}
        """Items that the encoder cache keeps for it, in the order in which it was asked for them: what is let go of
        first is evicted first, and no hash of a name may decide that."""
        self.num_cached: int | None = None
        """Prompt tokens that the KV cache had at its first admission; nothing before."""
        self.num_pulled = 0
        """Prompt tokens that a peer had beyond them."""
        self.is_decoding = False
        self.finish_step = 0

    @property
    def num_prompt_tokens(self) -> int:
        """Without its output."""
        return self.ticket.request.num_prompt_tokens


class Ticket:
    """A request and its sequences."""

    __slots__ = (
        "has_first_token",
        "is_aborted",
        "num_left",
        "request",
        "sequences",
        "spans",
    )

    def __init__(self, request: EngineRequest) -> None:
        """Nothing is computed yet."""
        self.request = request
        self.spans = _spans_of(request)
        self.sequences: list[Sequence] = []
        self.num_left = request.num_choices
        """Sequences that have not ended."""
        self.has_first_token = False
        self.is_aborted = False

    def start(self, first_order: int, block_size: int) -> list[Sequence]:
        """Its sequences, made when the scheduler gets them."""
        request = self.request
        prompt = chain_of([segment.content for segment in request.segments], block_size)
        first_block = request.num_prompt_tokens // block_size
        # The last token of an answer is never fed back, so its KV is never computed.
        num_blocks = (request.num_prompt_tokens + request.num_output_tokens - 1) // block_size - first_block
        for choice in range(request.num_choices):
            order = first_order + choice
            # No prompt has a segment without tokens, so nobody else finds an output.
            output = Link((order, 0), first_block, num_blocks)
            self.sequences.append(Sequence(self, order, [*prompt, output], choice))
        return self.sequences


def _spans_of(request: EngineRequest) -> list[Span]:
    spans: list[Span] = []
    start = 0
    for segment in request.segments:
        end = start + segment.num_tokens
        if isinstance(segment, MediaSegment):
            spans.append(Span(start, end, segment))
        start = end
    return spans
