"""``tessera envoy-config``: the Envoy configuration that ``serve --envoy`` would run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.options import ConfigOption, err, read_config, said_plainly
from tessera.config.endpoints import read_endpoints_file
from tessera.live.app import client_facing, reports_stages, shows_responses
from tessera.live.envoy import BodyMode, EnvoySettings, envoy_config


def print_envoy_config(
    endpoints: Annotated[Path, typer.Option(help="The endpoints file.", show_default=False)],
    config: ConfigOption = None,
    bind: Annotated[str, typer.Option(help="Address that clients connect to.")] = "127.0.0.1",
    listen: Annotated[int, typer.Option(help="Port that clients connect to.", min=0, max=65535)] = 8080,
    grpc: Annotated[str, typer.Option(help="host:port of Tessera's ext_proc and access log.")] = "127.0.0.1:9002",
    admin_port: Annotated[int, typer.Option(help="Envoy's admin port.", min=0, max=65535)] = 9901,
    body_mode: Annotated[BodyMode, typer.Option(help="How Envoy hands bodies over.")] = BodyMode.BUFFERED,
) -> None:
    """Print an Envoy configuration (JSON, which Envoy reads as it reads YAML).

    tessera envoy-config --endpoints endpoints.yaml > envoy.json

    envoy --config-path envoy.json
    """
    with said_plainly():
        loaded = read_config(config, ignore_missing=True)
        listed, problems = read_endpoints_file(endpoints)
        for problem in problems:
            err.print(f"[yellow]warning[/yellow]: {endpoints}: {problem}")
        settings = EnvoySettings(
            listen_address=bind,
            listen_port=listen,
            admin_port=admin_port,
            ext_proc_address=grpc,
            endpoints=client_facing(listed),
            num_retries=loaded.routing.fallbacks,
            max_body_bytes=loaded.routing.max_body_bytes,
            body_mode=body_mode,
            shows_response_headers=shows_responses(loaded.router, listed),
            reports_stages=reports_stages(loaded.router, listed),
        )
        typer.echo(json.dumps(envoy_config(settings), indent=2))
