"""``tessera demo``: a fleet, a router and traffic on this machine, round robin beside Tessera."""

import asyncio
import json
import random
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import aiohttp
import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tessera.cli.decision_table import print_decision
from tessera.cli.demo_fleet import DemoFleet
from tessera.cli.options import ConfigOption, out, said_plainly

if TYPE_CHECKING:
    from tessera.cli.demo_traffic import DemoRequest, PassResult

MODEL = "Qwen/Qwen3-VL-32B-Instruct"
REFRESH_S = 0.5
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def demo(
    config: ConfigOption = None,
    num_requests: Annotated[int, typer.Option("--requests", help="Requests of each pass.", min=1, max=10_000)] = 300,
    servers: Annotated[int, typer.Option(help="Emulated servers.", min=1, max=64)] = 4,
    rate: Annotated[float, typer.Option(help="Requests a second.", min=0.1)] = 18.0,
    speed: Annotated[float, typer.Option(help="Speed of the emulated servers; 1 is one H200 pair.", min=0.01)] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same traffic.")] = 0,
    svg: Annotated[Path | None, typer.Option(help="Also save the result as a picture.", show_default=False)] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running afterwards, until Ctrl-C.")] = False,
) -> None:
    """Start four emulated servers, Tessera and Envoy, and send the same traffic twice: by round robin, then by Tessera.

    No GPU and no model is needed: the servers take the time that a model of
    Qwen3-VL-32B on two H200s says. Ends with both passes side by side and one
    decision explained.
    """
    with said_plainly():
        from tessera.cli.demo_traffic import draw_traffic

        with out.status(f"drawing {num_requests} requests"):
            traffic = draw_traffic(num_requests, rate, seed)
        fleet = DemoFleet(model=MODEL, num_servers=servers, speed=speed, config=config)
        asyncio.run(_interruptible(_demo(fleet, traffic, svg=svg, keep=keep)))


async def _interruptible(work: Any) -> None:
    """Ctrl-C and SIGTERM end the demo in order: what it started is stopped."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        out.print("stopped; everything that the demo started is gone")


async def _demo(fleet: DemoFleet, traffic: "Sequence[DemoRequest]", *, svg: Path | None, keep: bool) -> None:
    with out.status("starting the servers, Tessera and Envoy"):
        await fleet.__aenter__()
    try:
        async with aiohttp.ClientSession() as session:
            passes = []
            served: list[list[dict[str, int]]] = []
            for name, port in (("round robin", "baseline"), ("Tessera", "envoy")):
                await _empty_caches(session, fleet)
                before = await _served(session, fleet)
                passes.append(await _run_pass(session, fleet, name, fleet.ports[port], traffic))
                after = await _served(session, fleet)
                served.append(
                    [{key: now[key] - was[key] for key in now} for was, now in zip(before, after, strict=True)]
                )
            out.record = svg is not None
            out.print(_comparison(passes))
            out.print(_per_endpoint(fleet, served))
            await _explain_one(session, fleet)
            if svg is not None:
                # Rich links its font from a server of others; the picture shall ask nobody.
                drawing = _FONT_FACE.sub("", out.export_svg(title="tessera demo"))
                await asyncio.to_thread(svg.write_text, drawing)
        if keep:
            _print_curl(fleet)
            await asyncio.Event().wait()
    finally:
        await fleet.__aexit__(None, None, None)


async def _run_pass(
    session: aiohttp.ClientSession, fleet: DemoFleet, name: str, port: int, traffic: "Sequence[DemoRequest]"
) -> "PassResult":
    """One pass, with a progress bar and the fleet's state while it runs."""
    from tessera.cli.demo_traffic import run_pass

    progress = Progress(
        TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=out
    )
    bar = progress.add_task(name, total=len(traffic))

    def tell(result: "PassResult") -> None:
        progress.update(bar, completed=len(result.ttft_s) + result.num_failed)

    running = asyncio.create_task(run_pass(name, port, MODEL, list(traffic), tell))
    try:
        with Live(progress, console=out, refresh_per_second=4) as live:
            while not running.done():
                await asyncio.wait([running], timeout=REFRESH_S)
                live.update(Group(progress, await _state(session, fleet)))
        out.print()
        return running.result()
    finally:
        running.cancel()


async def _state(session: aiohttp.ClientSession, fleet: DemoFleet) -> Table:
    table = Table("endpoint", "running", "waiting", "prompt tokens", "answer tokens")
    for port, row in zip(fleet.server_ports, await _served(session, fleet), strict=True):
        table.add_row(f"127.0.0.1:{port}", *(str(row[key]) for key in ("running", "waiting", "prompt", "answer")))
    return table


_SERIES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "prompt": "vllm:prompt_tokens_total",
    "answer": "vllm:generation_tokens_total",
    "requests": "vllm:request_success_total",
}


async def _served(session: aiohttp.ClientSession, fleet: DemoFleet) -> list[dict[str, int]]:
    """What each server's metrics page says of it."""
    pages = await asyncio.gather(*(_page(session, port) for port in fleet.server_ports))
    return [{key: _sum(page, series) for key, series in _SERIES.items()} for page in pages]


async def _empty_caches(session: aiohttp.ClientSession, fleet: DemoFleet) -> None:
    """Let no pass find what another left."""
    for port in fleet.server_ports:
        for cache in ("prefix", "encoder", "mm"):
            async with session.post(f"http://127.0.0.1:{port}/reset_{cache}_cache") as answer:
                answer.raise_for_status()


async def _page(session: aiohttp.ClientSession, port: int) -> str:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return await answer.text()


def _sum(page: str, series: str) -> int:
    lines = (line for line in page.splitlines() if line.startswith((series + "{", series + " ")))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def _comparison(passes: "Sequence[PassResult]") -> Table:
    table = Table(title="The same requests, twice")
    table.add_column("")
    for name in ("answered", "failed", "TTFT p50", "TTFT p90", "TTFT p99", "seconds"):
        table.add_column(name, justify="right")
    for result in passes:
        percentiles = [f"{result.percentile(fraction):.3f} s" for fraction in (0.5, 0.9, 0.99)]
        table.add_row(
            result.name, str(len(result.ttft_s)), str(result.num_failed), *percentiles, f"{result.duration_s:.1f}"
        )
    failed = next((result.last_error for result in passes if result.last_error), None)
    table.caption = (
        f"a failure said: {failed[:200]}" if failed else "emulated servers on this machine: a model, not GPUs"
    )
    return table


def _per_endpoint(fleet: DemoFleet, served: Sequence[Sequence[dict[str, int]]]) -> Table:
    table = Table(title="Prompt tokens (requests) by endpoint")
    table.add_column("endpoint")
    for name in ("round robin", "Tessera"):
        table.add_column(name, justify="right")
    for index, port in enumerate(fleet.server_ports):
        table.add_row(
            f"127.0.0.1:{port}", *(f"{rows[index]['prompt']:,} ({rows[index]['requests']})" for rows in served)
        )
    spreads = [[row["prompt"] for row in rows] for rows in served]
    table.add_row("most / least", *(f"{max(spread) / max(1, min(spread)):.2f}" for spread in spreads), style="bold")
    return table


async def _explain_one(session: aiohttp.ClientSession, fleet: DemoFleet) -> None:
    """One decision about a picture, as ``/debug/decisions`` tells it."""
    base = f"http://127.0.0.1:{fleet.ports['metrics']}/debug/decisions"
    async with session.get(base) as answer:
        rows = (await answer.json())["decisions"]
    chosen = max(rows, key=lambda row: row["num_prompt_tokens"], default=None)
    if chosen is None:
        return
    async with session.get(f"{base}/{chosen['request_id']}") as answer:
        out.print("\nOne decision, explained:", style="bold")
        print_decision(await answer.json())


def _print_curl(fleet: DemoFleet) -> None:
    from tessera.cli.demo_traffic import picture

    url = picture(random.Random(1), (64, 64), "PNG")
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is in this picture?"}]
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 16}
    out.print("\nstill running; paste this, then look at /debug/decisions; Ctrl-C stops it all", style="bold")
    typer.echo(
        f"curl http://127.0.0.1:{fleet.ports['envoy']}/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{json.dumps(body)}'"
    )
    typer.echo(f"curl http://127.0.0.1:{fleet.ports['metrics']}/debug/decisions")
