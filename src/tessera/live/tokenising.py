"""Which token ids does a request's prompt have? Asked in a thread, and waited for as long as the request may wait."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from tessera.core.draft import Draft
from tessera.core.pricing.text import BYTES_PER_TOKEN, num_text_bytes
from tessera.core.rendering.prompt import PromptTokens
from tessera.core.rendering.unrendered import Reason
from tessera.core.router import Router
from tessera.core.types import InferenceRequest
from tessera.live.token_memo import TokenMemo

BUDGET_S: Final = 0.020
"""How long a request waits for its token ids at least."""
BUDGET_PER_TOKEN_S: Final = 2e-6
"""And for each token that its text may have."""
NUM_THREADS: Final = 2

_log = logging.getLogger("tessera.tokenising")


class Tokenising:
    """Tokenises prompts in two threads; a request whose prompt is late goes on without.

    Its thread ends by itself, and the result is dropped. While both threads are late,
    further requests do not wait at all. Memory: the bodies of two late requests, and
    ``TokenMemo``.
    """

    def __init__(self, router: Router, failed: Callable[[str], None], *, budget_s: float = BUDGET_S) -> None:
        """``failed`` is told of a fault in the code, for a counter."""
        self.memo = TokenMemo()
        self._router = router
        self._failed = failed
        self._budget_s = budget_s
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="tokenise")
        self._num_late = 0

    async def tokens(self, request: InferenceRequest, draft: Draft) -> PromptTokens:
        """The prompt's ids, or why there are none. Never raises."""
        if self._num_late >= NUM_THREADS:
            return PromptTokens(reason=Reason.BUSY)
        asked = [(request, draft)]
        work = self._pool.submit(self._tokenise, asked)
        del draft
        budget_s = self._budget_s + BUDGET_PER_TOKEN_S * num_text_bytes(request) / BYTES_PER_TOKEN
        waited = asyncio.wrap_future(work)
        try:
            await asyncio.wait([waited], timeout=budget_s)
        finally:
            # Late it is, too, where the client has gone and nobody waits any more.
            if is_late := not work.done():
                waited.cancel()
                self._let_go(work, asked)
        if is_late:
            return PromptTokens(reason=Reason.LATE)
        if work.cancelled() or self._has_failed(work):
            return PromptTokens(reason=Reason.FAILED)
        return work.result()

    def close(self) -> None:
        """Start nothing more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tokenise(self, asked: list[tuple[InferenceRequest, Draft]]) -> PromptTokens:
        return self._router.tokenise(*asked.pop(), self.memo)

    def _let_go(self, work: Future[PromptTokens], asked: list[tuple[InferenceRequest, Draft]]) -> None:
        """Count the thread as late until it ends; work that has not begun is dropped."""
        if work.cancel():
            # The pool keeps what is cancelled until one of its threads is free.
            asked.clear()
            return
        self._num_late += 1
        loop = asyncio.get_running_loop()

        def ended(work: Future[PromptTokens]) -> None:
            # The loop may be closed by then: nobody counts any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, work)

        work.add_done_callback(ended)

    def _ended(self, work: Future[PromptTokens]) -> None:
        self._num_late -= 1
        self._has_failed(work)

    def _has_failed(self, work: Future[PromptTokens]) -> bool:
        """Whether work that has ended met a fault of ours, which is told then."""
        fault = work.exception()
        if fault is not None:
            _log.error("tokenising failed", exc_info=fault)
            self._failed("tokenise")
        return fault is not None
