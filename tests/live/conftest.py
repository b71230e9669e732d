"""Engines that publish KV events."""

import pytest
import zmq.asyncio

from .kv_engine import Engine


@pytest.fixture
async def engines():
    context, made = zmq.asyncio.Context(), []

    def make(port=None):
        made.append(Engine(context, port))
        return made[-1]

    yield make
    for each in made:
        each.stop()
    context.destroy(linger=0)
