"""``tessera``: which commands are there?"""

import typer

from tessera.cli import advise, check, demo, emulate, envoy_config, explain, plugins, price, serve, sidecar, simulate
from tessera.cli.sidecar_flags import SidecarCommand

app = typer.Typer(
    help="A router for vision-language model servers: it knows what a picture costs before it is tokens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(serve.serve)
app.command()(check.check)
app.command()(price.price)
app.command()(explain.explain)
app.command()(plugins.plugins)
app.command()(emulate.emulate)
app.command()(simulate.simulate)
app.command("advise")(advise.advise_command)
app.command(cls=SidecarCommand)(sidecar.sidecar)
app.command("envoy-config")(envoy_config.print_envoy_config)


if __name__ == "__main__":
    app()
