"""A conversation with one flow: ``play >> what arrives``, ``play << what must leave``.

Whatever leaves must be asserted before the next event comes, and before the test ends.
Encoders are e1, e2 ..., prefillers p1 ..., the engine behind us is d:8000. Bodies are kept, as
JSON, by what they were for.
"""

import json

import pytest

from tessera.core.flow import commands, events
from tessera.core.flow.commands import Break, Cancel, End, Refuse, Relay, WakeAt
from tessera.core.flow.connectors.ec_example import ECExample
from tessera.core.flow.connectors.ec_nixl import ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.document import Document
from tessera.core.flow.events import Cause
from tessera.core.flow.flow import Flow, Job
from tessera.core.flow.plan import read_plan
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.shapes import SHAPES
from tessera.core.work import Work

EC = {"ec-nixl": ECNixl, "ec-example": ECExample, None: lambda: None}
DECODER = "d:8000"


def picture(name, **more):
    return {"type": "image_url", "image_url": {"url": f"https://pictures/{name}"}, **more}


def chat(*parts, **more):
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}


def reference(name, host="10.9.9.9", port=5601):
    """An entry as an encoder with NIXL announces it."""
    entry = {"item_indices": [0], "metadata": {"image_grid_thw": [1, 44, 80]}}
    return {name: entry | ({"peer_host": host, "peer_port": port, "size_bytes": 8, "shape": [1, 8]} if host else {})}


BLOCKS = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1, 2]], "remote_host": "10.8.8.8"}


class FlowPlay:
    """One flow, and what has left it and was not asserted yet."""

    chat, picture, reference = staticmethod(chat), staticmethod(picture), staticmethod(reference)
    Cause, Work = Cause, Work
    Relay, Refuse, Break, End, WakeAt, Cancel = Relay, Refuse, Break, End, WakeAt, Cancel

    def __init__(
        self,
        body,
        *,
        encoders="",
        plan="",
        prefillers="",
        ec="ec-nixl",
        kv=True,
        path="/v1/chat/completions",
        **settings,
    ):
        headers = {
            "x-encoder-hosts-ports": encoders,
            "x-tessera-encode-plan": plan,
            "x-prefiller-host-port": prefillers,
        }
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        job = Job(
            document=Document(self.body),
            shape=SHAPES[path],
            plan=read_plan(headers),
            decoder=DECODER,
            ec=EC[ec](),
            kv=KVNixl() if kv else None,
        )
        self.flow = Flow(job, FlowSettings(**settings))
        self.left = []
        self.bodies = {}
        self.wakes = []
        self.at = 0.0

    @property
    def report(self):
        return self.flow.report

    def __rshift__(self, event):
        assert self.left == [], "something left that nobody expected"
        for command in self.flow.receive(event):
            self._keep(command)
        return self

    def __lshift__(self, expected):
        assert self.left, f"nothing left, expected {expected}"
        assert self.left.pop(0) == expected
        return self

    def _keep(self, command):
        match command:
            case commands.Encode():
                self.bodies["encode", command.item, command.attempt] = json.loads(command.body)
                self.left.append(("encode", command.item, command.attempt, command.endpoint))
            case commands.Prefill():
                self.bodies["prefill", command.attempt] = json.loads(command.body)
                self.left.append(("prefill", command.attempt, command.endpoint))
            case commands.Decode():
                self.bodies["decode", command.attempt] = json.loads(command.body)
                self.left.append(("decode", command.attempt, command.num_cached_tokens))
            case WakeAt():
                self.wakes.append(command.at)
            case _:
                self.left.append(command)

    def at_time(self, at):
        self.at = at
        return self

    def started(self):
        return events.Started(self.at)

    def encoded(self, item, attempt=0, status=200, entries=None, body=None):
        answer = {"choices": [], "ec_transfer_params": reference(f"hash{item}") if entries is None else entries}
        return events.EncodeAnswered(self.at, item, attempt, status, body or json.dumps(answer).encode())

    def encode_failed(self, item, attempt=0, cause=Cause.UNREACHABLE):
        return events.EncodeFailed(self.at, item, attempt, cause)

    def prefilled(self, attempt=0, status=200, blocks=BLOCKS, cached=None, body=None):
        usage = {"prompt_tokens": 9, "prompt_tokens_details": None if cached is None else {"cached_tokens": cached}}
        answer = {"choices": [], "usage": usage, "kv_transfer_params": blocks}
        return events.PrefillAnswered(self.at, attempt, status, body or json.dumps(answer).encode())

    def prefill_failed(self, attempt=0, cause=Cause.UNREACHABLE):
        return events.PrefillFailed(self.at, attempt, cause)

    def headers(self, status=200, attempt=0):
        return events.DecodeHeaders(self.at, attempt, status)

    def ended(self, attempt=0):
        return events.DecodeEnded(self.at, attempt)

    def decode_failed(self, cause=Cause.CUT, attempt=0):
        return events.DecodeFailed(self.at, attempt, cause)

    def woken(self):
        return events.Woken(self.at)

    def client_gone(self):
        return events.ClientGone(self.at)

    def relayed(self, attempt=0, status=200):
        """The engine answers, and its answer ends."""
        self >> self.headers(status, attempt)
        assert isinstance(self.left.pop(0), Relay)
        self >> self.ended(attempt)
        self << End()
        return self

    def end(self):
        """The flow is over, nothing was left unasserted, and nothing leaves any more."""
        assert self.left == []
        assert self.flow.is_over
        for event in (self.woken(), self.started(), self.encoded(0), self.prefilled(), self.headers(), self.ended()):
            assert self.flow.receive(event) == []


@pytest.fixture
def begin():
    """Makes flows, each of which must have been asserted to its end."""
    plays = []

    def make(*args, **options):
        plays.append(FlowPlay(*args, **options))
        return plays[-1]

    make.chat, make.picture, make.reference, make.blocks = chat, picture, reference, BLOCKS
    yield make
    for play in plays:
        play.end()
