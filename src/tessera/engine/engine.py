"""What does one vLLM-like server do with its requests, and when?"""

from tessera.engine.events import EngineEvent, EngineFacts
from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import EngineRequest


class Engine:
    """One server, told the time.

    Instants are float seconds on the driver's clock and never go back: each call's
    ``at`` is at least that of the call before. Nothing happens between calls:

    >>> engine = Engine(PROFILES["h200-tp2-qwen3-vl-32b"])  # doctest: +SKIP
    >>> engine.submit(request, at=10.0)  # doctest: +SKIP
    >>> while (at := engine.next_at) is not None:  # doctest: +SKIP
    ...     for event in engine.advance(at):
    ...         print(event)

    How finely a driver advances changes nothing: the same submissions and aborts give
    the same events at the same instants.
    """

    def __init__(self, profile: EngineProfile, *, tells_kv_events: bool = False) -> None:
        """An empty server.

        Args:
            profile: hardware, model and settings.
            tells_kv_events: whether ``advance`` also returns ``KVEvent``.
        """
        raise NotImplementedError

    def submit(self, request: EngineRequest, at: float) -> None:
        """The request's bytes have arrived at the API server.

        Raises:
            ValueError: the engine still has a request of this id.
        """
        raise NotImplementedError

    def abort(self, request_id: str, at: float) -> None:
        """The client has gone: no event after ``at`` names the request. One that is unknown or over is ignored."""
        raise NotImplementedError

    @property
    def next_at(self) -> float | None:
        """When something happens next, if nothing is submitted or aborted; nothing where the engine is idle.

        It need not yield an event for a driver, but each is in ``advance`` of such an instant.
        """
        raise NotImplementedError

    def advance(self, at: float) -> list[EngineEvent]:
        """All that happens up to and including ``at``, in order."""
        raise NotImplementedError

    def facts(self, at: float) -> EngineFacts:
        """The state at ``at``, which lies before ``next_at`` (all before it was taken by ``advance``)."""
        raise NotImplementedError

    def num_generated(self, request_id: str, at: float) -> int:
        """Output tokens of a request so far, of all choices; 0 where it is unknown. ``at`` as for ``facts``."""
        raise NotImplementedError
