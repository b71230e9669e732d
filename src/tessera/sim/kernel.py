"""What happens next, in virtual time?"""

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Kernel:
    """A clock that jumps from one action to the next, soonest first.

    Actions of one instant run in the order in which they were asked for. Seconds start
    at 0 and never go back.
    """

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds of virtual time."""
        self._due: list[tuple[float, int, Action]] = []
        self._num_asked = 0

    def at(self, when: float, action: Action) -> None:
        """Run ``action`` at ``when``, which is not in the past."""
        assert when >= self.now, f"an action for {when} s is asked for at {self.now} s"
        self._num_asked += 1
        heapq.heappush(self._due, (when, self._num_asked, action))

    def run(self) -> None:
        """Run until nothing is left to happen."""
        due = self._due
        while due:
            self.now, _, action = heapq.heappop(due)
            action()

    def stop(self) -> None:
        """Forget whatever is due, so that ``run`` comes to its end."""
        self._due.clear()
