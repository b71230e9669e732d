"""What does the fleet look like now?"""

from tessera.core.facts import EndpointState, FleetEvent, FleetView, Joined, Left, Scraped
from tessera.core.types import Endpoint


class Fleet:
    """The endpoints and their last scrapes; each change makes the next view, none is edited."""

    def __init__(self) -> None:
        self._states: dict[str, EndpointState] = {}
        self._view: FleetView | None = FleetView()

    def apply(self, event: FleetEvent) -> None:
        """Take an event in; what it does not concern is left as it is."""
        match event:
            case Joined(endpoint=endpoint):
                known = self._states.get(endpoint.id)
                self._states[endpoint.id] = EndpointState(endpoint, known.load) if known else EndpointState(endpoint)
            case Left(endpoint=endpoint):
                self._states.pop(endpoint.id, None)
            case Scraped(endpoint_id=endpoint_id, load=load) if endpoint_id in self._states:
                self._states[endpoint_id] = EndpointState(self._states[endpoint_id].endpoint, load)
            case _:
                return
        self._view = None

    def view(self) -> FleetView:
        """The fleet at this instant."""
        if self._view is None:
            self._view = FleetView(tuple(self._states.values()))
        return self._view

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints, in the order in which they came."""
        return tuple(state.endpoint for state in self._states.values())
