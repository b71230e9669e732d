"""``tessera emulate``: an OpenAI-compatible server without a GPU that stands in for vLLM."""

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from tessera.emulator.server import run
from tessera.emulator.settings import EmulatorSettings


def emulate(
    model: Annotated[str, typer.Option(help="The served model's name.")],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 asks the system.", min=0, max=65535)] = 8000,
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    speed: Annotated[float, typer.Option(help="How many times faster than the modelled server.", min=0.001)] = 1.0,
) -> None:
    """Serve an emulated vLLM: chat and completions, usage, metrics, errors as vLLM's, and service times of a model.

    Pictures cost what they cost on Qwen3-VL; a big one delays those behind it. Prints one JSON line when ready.

        tessera emulate --model Qwen/Qwen3-VL-32B-Instruct --port 8000
    """
    settings = EmulatorSettings(model=model, host=bind, port=port)
    settings = replace(settings, service_time=replace(settings.service_time, speed=speed))
    asyncio.run(run(settings, say=typer.echo))
