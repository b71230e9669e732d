"""``tessera``: which commands are there?"""

from importlib.metadata import version
from typing import Annotated

import typer

from tessera.cli import advise, check, demo, emulate, envoy_config, explain, plugins, price, serve, sidecar, simulate
from tessera.cli.sidecar_flags import SidecarCommand

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # In boxes, 80 columns cut the names of options short.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tessera {version('tessera-router')}")
        raise typer.Exit


@app.callback()
def _about(
    is_version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version, and stop.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """A router for vision-language model servers: it knows what a picture costs before it is tokens."""


app.command(short_help="Run four emulated servers, Tessera and Envoy here.")(demo.demo)
app.command(short_help="Answer a gateway; with --envoy, be the gateway too.")(serve.serve)
app.command()(check.check)
app.command()(price.price)
app.command(short_help="Show where a request would go, and why.")(explain.explain)
app.command(short_help="List every plugin type, or one with its parameters.")(plugins.plugins)
app.command(short_help="Serve an emulated vLLM with a model of its engine.")(emulate.emulate)
app.command(short_help="Run a fleet in virtual time; compare policies.")(simulate.simulate)
app.command("advise", short_help="Say how to divide GPUs for a workload, and why.")(advise.advise_command)
app.command(cls=SidecarCommand, short_help="Run encode, prefill and decode apart.")(sidecar.sidecar)
app.command("envoy-config", short_help="Print an Envoy configuration, in JSON.")(envoy_config.print_envoy_config)


if __name__ == "__main__":
    app()
