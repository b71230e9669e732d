"""``tessera serve``: route live traffic."""

import logging
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tessera.cli.options import ConfigOption, err, read_config, said_plainly
from tessera.cli.running import serve_until_signalled
from tessera.config.load import LoadedConfig
from tessera.core.errors import ConfigError, Problem
from tessera.live.app import DRAIN_TIMEOUT_S, LiveRouter, ServeSettings
from tessera.live.envoy import BodyMode
from tessera.live.envoy_process import EnvoyEnded


def serve(
    endpoints: Annotated[
        Path, typer.Option(help="The endpoints file; it is watched, changes need no restart.", show_default=False)
    ],
    config: ConfigOption = None,
    envoy: Annotated[bool, typer.Option("--envoy", help="Also write an Envoy configuration and run Envoy.")] = False,
    bind: Annotated[str, typer.Option(help="Address of every port.")] = "127.0.0.1",
    listen: Annotated[int, typer.Option(help="Envoy's port for clients; 0 asks the system.", min=0, max=65535)] = 8080,
    grpc_port: Annotated[int, typer.Option(help="ext_proc and access log.", min=0, max=65535)] = 9002,
    metrics_port: Annotated[int, typer.Option(help="/metrics, /healthz, /readyz, /debug.", min=0, max=65535)] = 9090,
    baseline_listen: Annotated[
        int | None,
        typer.Option(
            help="A second port of Envoy that spreads by round robin without asking, for comparison.",
            show_default=False,
        ),
    ] = None,
    body_mode: Annotated[
        BodyMode, typer.Option(help="How the generated Envoy hands bodies over; BUFFERED goes on without Tessera.")
    ] = BodyMode.BUFFERED,
    ignore_missing_plugins: Annotated[
        bool, typer.Option(help="Leave out plugins that llm-d has and Tessera has not, instead of refusing.")
    ] = False,
    drain_timeout: Annotated[
        float, typer.Option(help="Seconds that requests in flight may go on after SIGTERM.", min=0)
    ] = DRAIN_TIMEOUT_S,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Answer a gateway's ext_proc questions, and with --envoy be the gateway too.

    Prints one JSON line when ready: {"ready": true, "ports": {...}}. SIGTERM lets
    requests in flight end.

        tessera serve --config my.yaml --endpoints endpoints.yaml --envoy
    """
    with said_plainly():
        start_logging(log_level)
        settings = ServeSettings(
            config=_read(config, ignore_missing=ignore_missing_plugins),
            endpoints_path=endpoints,
            bind=bind,
            listen_port=listen,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            with_envoy=envoy,
            body_mode=body_mode,
            baseline_port=baseline_listen,
        )
        _run(settings, drain_timeout)


def _run(settings: ServeSettings, drain_timeout_s: float) -> None:
    """Serve; exit code 1 where our own Envoy died."""
    try:
        uvloop.run(run_until_signalled(settings, drain_timeout_s))
    except EnvoyEnded as error:
        err.print("[red]error[/red]: ", end="")
        err.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


def start_logging(level: str) -> None:
    """Logs on standard error, one line each; raises ConfigError for an unknown level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError([Problem("--log-level", f"got {level!r}, expected debug, info, warning or error")])
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def _read(config: Path | None, *, ignore_missing: bool) -> LoadedConfig:
    """The configuration, with what it warns of and what was added said; refused where a plugin is missing."""
    loaded = read_config(config, ignore_missing=ignore_missing)
    for warning in loaded.warnings:
        err.print("[yellow]warning[/yellow]: ", end="")
        err.print(str(warning), markup=False, soft_wrap=True)
    for addition in loaded.additions:
        err.print(f"added: {addition}", style="dim", markup=False, soft_wrap=True)
    if loaded.missing_plugins and not ignore_missing:
        leave_out = "--ignore-missing-plugins leaves it out"
        raise ConfigError([Problem(each.path, f"{each.message}; {leave_out}") for each in loaded.missing_plugins])
    return loaded


async def run_until_signalled(settings: ServeSettings, drain_timeout_s: float) -> None:
    """Serve until SIGTERM or SIGINT, or until something that must run has ended; drains where a signal asked."""
    router = LiveRouter(settings)
    await serve_until_signalled(router, lambda is_asked: router.stop(drain_timeout_s if is_asked else 0))
