"""The order of stages, and what is noted of each."""

from itertools import count

from tessera.core.types import Ending
from tessera.sim.client import Sent
from tessera.sim.content import Text, user
from tessera.sim.kernel import Kernel
from tessera.sim.load import LoadGenerator
from tessera.sim.load_stages import LoadStage


class Workload:
    def asks(self, stage):
        return (user(Text(f"{stage}-{number}", 1), num_output_tokens=1) for number in count())


class Client:
    """Answers each request after so many seconds, or at once."""

    def __init__(self, kernel, takes_s):
        self.kernel, self.takes_s = kernel, takes_s
        self.on_end = None
        self.asked = []
        self.ids = count()

    def send(self, ask, stage):
        sent = Sent(f"r{next(self.ids)}", stage, self.kernel.now, 1)
        self.asked.append((self.kernel.now, ask.messages[0].parts[0].key))
        if self.takes_s:
            self.kernel.at(self.kernel.now + self.takes_s, lambda: self.end(sent))
        else:
            self.end(sent)
        return sent

    def end(self, sent):
        sent.ending, sent.ended_at = Ending.FINISHED, self.kernel.now
        self.on_end(sent)


class Server:
    """Counts how often it was read."""

    def __init__(self, kernel):
        self.kernel = kernel

    def facts(self):
        return self.kernel.now


def run(stages, takes_s):
    kernel = Kernel()
    client = Client(kernel, takes_s)
    generator = LoadGenerator(kernel, client, [Server(kernel)], Workload(), stages, spacing="constant", seed=0)
    kernel.run()
    return client.asked, generator.records


def test_with_a_pause_the_next_stage_waits_for_the_last_answer():
    stages = [LoadStage(rate=1, duration_s=2, pause_s=10), LoadStage(rate=2, duration_s=1, pause_s=10)]
    asked, records = run(stages, takes_s=3.0)
    # The last answer comes at 2 + 3, the next stage begins at 15.
    assert asked == [(1.0, "0-0"), (2.0, "0-1"), (15.5, "1-0"), (16.0, "1-1")]
    assert [record.facts_before for record in records] == [(0.0,), (15.0,)]
    assert [record.facts_after for record in records] == [(5.0,), (19.0,)]


def test_without_a_pause_the_next_stage_begins_with_requests_in_flight():
    stages = [LoadStage(rate=1, duration_s=2), LoadStage(rate=1, duration_s=2)]
    asked, records = run(stages, takes_s=3.0)
    assert [at for at, _ in asked] == [1.0, 2.0, 3.0, 4.0]
    assert [record.facts_before for record in records] == [(0.0,), (2.0,)]
    assert [record.facts_after for record in records] == [(5.0,), (7.0,)]


def test_answers_that_come_at_once_end_a_stage_once():
    stages = [LoadStage(rate=1, duration_s=2, pause_s=1), LoadStage(rate=1, duration_s=1, pause_s=1)]
    asked, records = run(stages, takes_s=0.0)
    assert [at for at, _ in asked] == [1.0, 2.0, 4.0]
    assert [len(record.sent) for record in records] == [2, 1]


def test_a_stage_of_no_request_passes():
    stages = [LoadStage(rate=0.1, duration_s=5), LoadStage(rate=1, duration_s=1)]
    asked, _ = run(stages, takes_s=1.0)
    assert [at for at, _ in asked] == [6.0]
