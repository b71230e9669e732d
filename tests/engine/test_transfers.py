"""When reads arrive."""

from math import inf

from tessera.engine.profiles import Network
from tessera.engine.requests import EngineRequest, TextSegment
from tessera.engine.sequences import Ticket
from tessera.engine.transfers import Transfers


def ticket(name: str) -> Ticket:
    return Ticket(EngineRequest(name, (TextSegment(key=1, num_tokens=1),), num_output_tokens=1))


def test_bytes_follow_each_other_and_latencies_overlap() -> None:
    transfers = Transfers(Network(bytes_per_s=100.0, latency_s=0.5))
    assert transfers.next_at == inf
    first, second, third = map(ticket, "abc")
    transfers.push(first, 100, at=1.0)
    transfers.push(second, 50, at=1.2)
    transfers.push(third, 10, at=9.0)
    arrivals = []
    for expected in (first, second, third):
        arrivals.append(transfers.next_at)
        assert transfers.pop() is expected
    # 1.0 + 1 + 0.5; behind the first's bytes at 2.0, 0.5 + 0.5; an idle network: 9.0 + 0.1 + 0.5.
    assert arrivals == [2.5, 3.0, 9.6]
    assert transfers.num_bytes == 160
