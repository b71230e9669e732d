"""Which flags does the sidecar take, which of llm-d's not, and what to use instead?"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from tessera.cli.go_flags import FALSE_WORDS, TRUE_WORDS, GoFlagsCommand
from tessera.core.errors import ConfigError, Problem


class _NotTaken(NamedTuple):
    instead: str
    without_effect: tuple[str, ...] = ()
    """Values that ask for nothing: llm-d's defaults."""
    is_switch: bool = False


_POOL: Final = "pools of a cluster are not watched; list the servers in a file and give --endpoints FILE"
_OTHER_CONNECTOR: Final = "it belongs to a KV connector that is not carried out; use --kv-connector nixlv2"
_NO_FILE: Final = "settings are not read from YAML; write them as flags"
NOT_TAKEN: Final = {
    "--inference-pool": _NotTaken(_POOL, ("",)),
    "--pool-group": _NotTaken(_POOL, ("inference.networking.k8s.io",)),
    "--max-idle-conns-per-host": _NotTaken("idle connections are kept for 3 s, however many; leave it out", ("1024",)),
    "--mooncake-bootstrap-port": _NotTaken(_OTHER_CONNECTOR, ("8998",)),
    "--p2p-connector-port": _NotTaken("cached prefixes are not fetched from peers; leave it out", ("7777",)),
    "--enable-p2p-pull": _NotTaken(
        "cached prefixes are not fetched from peers; leave it out", ("false",), is_switch=True
    ),
    "--decode-chunk-size": _NotTaken("answers are decoded in one piece; leave it out", ("0",)),
    "--inference-pool-namespace": _NotTaken(_POOL, ("",)),
    "--inference-pool-name": _NotTaken(_POOL, ("",)),
    "--configuration": _NotTaken(_NO_FILE),
    "--configuration-file": _NotTaken(_NO_FILE),
}
"""llm-d's flags that are refused; one that only says its default is passed over."""


_RENAMED: Final = {
    "--prefiller-use-tls": "--enable-tls=prefiller",
    "--decoder-use-tls": "--enable-tls=decoder",
    "--prefiller-tls-insecure-skip-verify": "--tls-insecure-skip-verify=prefiller",
    "--decoder-tls-insecure-skip-verify": "--tls-insecure-skip-verify=decoder",
}
"""llm-d's deprecated switches, and what they mean. Source: ``pkg/sidecar/proxy/options.go`` of llm-d."""
_REFUSED_PREFIXES: Final = {
    "--moriio-": _OTHER_CONNECTOR,
    "--zap-": "the log is written in one way; for its level give --log-level debug, info, warning or error",
}


class SidecarCommand(GoFlagsCommand):
    """Takes llm-d's spelling of flags, and says what to use instead of what is not carried out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments without llm-d's flags that ask for nothing."""
        return super().parse_args(ctx, list(_taken(args)))


def _taken(args: list[str]) -> Iterator[str]:
    queue = iter(args)
    for argument in queue:
        name, equals, value = argument.partition("=")
        for prefix, instead in _REFUSED_PREFIXES.items():
            if name.startswith(prefix):
                raise typer.BadParameter(instead, param_hint=name)
        if name in _RENAMED:
            yield from _renamed_switch(name, value if equals else "true")
            continue
        flag = NOT_TAKEN.get(name)
        if flag is None:
            yield argument
            continue
        if not equals:
            value = "true" if flag.is_switch else next(queue, "")
        if value not in flag.without_effect:
            raise typer.BadParameter(flag.instead, param_hint=name)


def _renamed_switch(name: str, word: str) -> Iterator[str]:
    if word in TRUE_WORDS:
        yield _RENAMED[name]
    elif word not in FALSE_WORDS:
        raise typer.BadParameter(f"got {word[:40]!r}, expected true or false", param_hint=name)


_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def seconds(flag: str, text: str) -> float:
    """A time as Go writes it; a bare number is seconds.

    >>> seconds("--x", "200ms"), seconds("--x", "1.5"), seconds("--x", "2m")
    (0.2, 1.5, 120.0)

    Raises:
        ConfigError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise ConfigError([Problem(flag, f"got {text[:40]!r}, expected a time such as 200ms, 1.5s or 2m")])
    return float(found[1]) * _UNITS[found[2]]


Port = Annotated[int, typer.Option(help="Port for clients; rank i listens on port + i.", min=0, max=65535)]
ModelServerPort = Annotated[
    int,
    typer.Option(
        "--model-server-port", "--vllm-port", help="The engine's port; rank i's is port + i.", min=1, max=65535
    ),
]
Bind = Annotated[str, typer.Option(help="Address of every port; all, as a sidecar is asked from outside its pod.")]
Ranks = Annotated[int, typer.Option(help="Data-parallel ranks of the engine.", min=1, max=256)]
KVConnector = Annotated[
    str, typer.Option("--kv-connector", "--connector", help="How KV blocks are handed over: nixlv2.")
]
EC = Annotated[
    str,
    typer.Option(
        "--ec-connector",
        help="How embeddings are handed over: ec-nixl or ec-example; empty: nothing is encoded elsewhere.",
    ),
]
Endpoints = Annotated[
    Path | None,
    typer.Option(
        help="The endpoints file; it is watched. Only servers in it, by address and port, are asked; 403 for others.",
        show_default=False,
    ),
]
SSRFProtection = Annotated[bool, typer.Option(help="Refuse to start without --endpoints.")]
SecureProxy = Annotated[
    bool | None,
    typer.Option(
        "--secure-proxy/--no-secure-proxy", help="TLS for clients; on where --cert-path is given.", show_default=False
    ),
]
CertPath = Annotated[Path | None, typer.Option(help="A folder with tls.crt and tls.key.", show_default=False)]
TLSServers = Annotated[
    list[str] | None, typer.Option(help="Servers that speak TLS: prefiller, decoder, encoder.", show_default=False)
]
UnverifiedServers = Annotated[
    list[str] | None, typer.Option(help="Of these, whose certificates are not checked.", show_default=False)
]
Sampling = Annotated[
    bool, typer.Option(help="Try the prefillers named in random order.", envvar="ENABLE_PREFILLER_SAMPLING")
]
Retries = Annotated[
    int, typer.Option(help="Times that a prefiller is asked again after 502, 503 or 504.", min=0, max=100)
]
Backoff = Annotated[str, typer.Option(help="How long before that.")]
EncodeTimeout = Annotated[str, typer.Option(help="One encode job; then another encoder is asked.")]
EncodeBudget = Annotated[str, typer.Option(help="All encode jobs of a request; then the engine encodes.")]
EncodeAttempts = Annotated[int, typer.Option(help="Encoders that one item is given to.", min=1, max=100)]
ParallelEncodes = Annotated[int, typer.Option(help="Encode jobs of one request at once.", min=1, max=1024)]
PrefillTimeout = Annotated[str, typer.Option(help="One prefill; then another prefiller is asked.")]
PrefillBudget = Annotated[str, typer.Option(help="All prefills of a request; then the engine prefills.")]
RequestTimeout = Annotated[str, typer.Option(help="A whole request, its answer included.")]
ConnectTimeout = Annotated[str, typer.Option(help="Making a connection.")]
IdleTimeout = Annotated[str, typer.Option(help="The engine's longest silence; 0: no limit but the request's.")]
DrainTimeout = Annotated[str, typer.Option(help="What requests in flight get after SIGTERM.")]
BodyBytes = Annotated[int, typer.Option(help="Largest request body; 413 beyond.", min=1)]
MetricsPort = Annotated[int, typer.Option(help="/metrics there; 0: none, -1: the system chooses.", min=-1, max=65535)]
Tracing = Annotated[
    bool, typer.Option("--tracing", help="Send spans over OTLP and HTTP; OTEL_EXPORTER_OTLP_ENDPOINT says whereto.")
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
