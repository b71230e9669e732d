"""An event loop's clock that is turned by hand."""

import heapq
from functools import partial
from itertools import count


class ManualLoop:
    """``time`` and ``call_at`` of an event loop; nothing happens but in ``run``."""

    def __init__(self, *, late_s=0.0):
        """``late_s``: by how much each call comes late."""
        self.now = 1000.0
        self.num_calls = 0
        self._late_s = late_s
        self._calls = []
        self._order = count()

    def time(self):
        return self.now

    def call_at(self, when, callback, *arguments):
        timer = _Timer(partial(callback, *arguments))
        heapq.heappush(self._calls, (when, next(self._order), timer))
        return timer

    def run(self, until=float("inf")):
        """Make the calls that are due until then, or all."""
        while self._calls and self._calls[0][0] + self._late_s <= until:
            when, _, timer = heapq.heappop(self._calls)
            if timer.callback is not None:
                self.now = max(self.now, when + self._late_s)
                self.num_calls += 1
                timer.callback()
        if until < float("inf"):
            self.now = max(self.now, until)


class _Timer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None
