"""What must be deployed for an answer? Commands for engines and sidecars, the router's YAML, and the endpoints file.

Two folders at most: aggregated servers with the encoder's data parallelism, which is what
to try first, and the split where one is recommended. Addresses are of the range that
documentation may use (192.0.2.0/24, RFC 5737): they load, and nobody has them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Final

from tessera.core.errors import ConfigError, Problem
from tessera.engine.costs import Costs
from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import MediaSegment
from tessera.sim.advice import words
from tessera.sim.advice.advice import Advice
from tessera.sim.advice.candidates import Kind, kind_of
from tessera.sim.advice.engine_flags import (
    CLIENT_PORT,
    EC_PORT,
    ENGINE,
    ENGINE_PORT,
    MODELS,
    NIXL_PORT,
    environment_of,
    flags_of,
)
from tessera.sim.advice.ranking import servers_of
from tessera.sim.run import family_of
from tessera.sim.topology import Topology

_ROUTERS: Final = Path(__file__).parent / "routers"
_USED_FRACTION: Final = 0.95
"""Of the prefill rate that the router reckons with, as its own default does."""


def check_folder(folder: Path, *, force: bool) -> None:
    """See to it that files can be written there, before minutes are spent on them.

    Raises:
        ConfigError: it is no folder, or holds something and ``force`` is not given.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError([Problem("--out", f"{str(folder)!r} is no folder; name one that is new or empty")])
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ConfigError([Problem("--out", f"{str(folder)!r} is not empty; name another folder, or add --force")])


def write_deployment(advice: Advice, folder: Path) -> list[Path]:
    """Write the files; which, in their order.

    Raises:
        OSError: one cannot be written.
    """
    written = []
    for name, text in files_of(advice).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def files_of(advice: Advice) -> dict[str, str]:
    """What is written, by path in the folder."""
    base, best = advice.question.base, advice.ranking.recommended.candidate
    plain = advice.ranking.aggregated.candidate.topology
    parts = {"1-aggregated": plain}
    if best.kind is not Kind.AGGREGATED:
        parts[f"2-{best.topology.name}"] = best.topology
    files = {"README.md": _readme(advice, parts)}
    for part, topology in parts.items():
        title = f"{topology.name}, {advice.question.asked.name}"
        files[f"{part}/servers.sh"] = _servers(topology, base, title)
        if topology.has_stages:
            files[f"{part}/sidecar.sh"] = _sidecar(topology)
        files[f"{part}/router.yaml"] = _router(topology, base, title)
        files[f"{part}/endpoints.yaml"] = _endpoints(topology)
    return files


def _readme(advice: Advice, parts: dict[str, Topology]) -> str:
    names = list(parts)
    lines = [
        f"# {advice.question.asked.name}: what to deploy on {advice.question.num_gpus} GPUs",
        "",
        words.verdict(advice),
        "",
        words.first_try(advice),
        "",
        _first(names[0], advice.question.base),
    ]
    if len(names) > 1:
        lines.append(f"2. `{names[1]}`: the split. Only where the first does not reach your rate.")
    lines += [
        "",
        f"In each folder, for {ENGINE}, the same version and the same model string on every server:",
        "",
        "- `endpoints.yaml`: put your servers' addresses in place of 192.0.2.x; it is read by router and sidecars.",
        "- `servers.sh ROLE`: starts one engine; its head says how often, with which role, and what to set.",
        "- `sidecar.sh`: before each server that answers, where there are stages.",
        "- `router.yaml`: `tessera check router.yaml`, then `tessera serve --config router.yaml --endpoints "
        "endpoints.yaml --envoy`.",
        "",
        words.objectives(advice) + ".",
        "",
        words.caption(advice.question) + ".",
        "",
    ]
    return "\n".join(lines)


def _first(folder: str, base: EngineProfile) -> str:
    if base.num_gpus == 1:
        return f"1. `{folder}`: aggregated servers. Measure TTFT and TPOT at your rate."
    return (
        f"1. `{folder}`: aggregated servers with `{words.FLAG}`. Measure TTFT and TPOT at your rate with it, and with "
        "`ENCODER_TP_MODE=weights`, which is the engine's default."
    )


def _servers(topology: Topology, base: EngineProfile, title: str) -> str:
    rows = servers_of(topology)
    head = [
        "#!/usr/bin/env bash",
        f"# {ENGINE}: one engine of {title}. Written by `tessera advise`; a model's answer, not a measurement.",
        "# servers.sh ROLE, as often as is said here:",
    ]
    head += [f"#   {row['role']:<14} {row['servers']:>2} times, {row['gpus_each']} GPU(s) each" for row in rows]
    head += [
        *_what_to_set(topology),
        "set -euo pipefail",
        f'MODEL="${{MODEL:-{MODELS.get(base.model.name, base.model.name)}}}"',
    ]
    if topology.has_stages:
        head.append('HOST="${HOST:?the address of this server}"')
    if not topology.has_stages and base.num_gpus > 1:
        head += [
            f"# Try this first: {words.FLAG}. ENCODER_TP_MODE=weights is the engine's default.",
            'ENCODER_TP_MODE="${ENCODER_TP_MODE:-data}"',
        ]
    cases = "\n".join(_case(row["role"], topology, base) for row in rows)
    roles = "|".join(row["role"] for row in rows)
    host = "HOST=ADDRESS " if topology.has_stages else ""
    usage = f'  *)\n    echo "usage: {host}servers.sh {roles}" >&2\n    exit 2\n    ;;'
    return "\n".join([*head, f'case "${{1:-}}" in\n{cases}\n{usage}\nesac', ""])


def _what_to_set(topology: Topology) -> Iterator[str]:
    """Comments on the variables that the script reads."""
    ports = ["PORT"]
    if topology.num_encode:
        ports.append(f"EC_PORT of encoders (else {EC_PORT})")
    if topology.num_prefill:
        ports.append(f"NIXL_PORT of the others (else {NIXL_PORT})")
    if topology.has_stages:
        yield "# Set HOST to the server's own address, as its peers reach it."
    yield "# Where several share a machine, give each GPUs of its own (CUDA_VISIBLE_DEVICES) and ports:"
    yield f"# {', '.join(ports)}."


def _case(role: str, topology: Topology, base: EngineProfile) -> str:
    is_behind_sidecar = topology.has_stages and role in ("decode", "prefill-decode")
    port = ENGINE_PORT if is_behind_sidecar else CLIENT_PORT
    flags = [f'--port "${{PORT:-{port}}}"', *flags_of(role, topology, base, has_parallel_encoder=True)]
    if not topology.has_stages:
        flags = [each.replace("tp-mode data", 'tp-mode "$ENCODER_TP_MODE"') for each in flags]
    exports = "".join(f"    export {each}\n" for each in environment_of(role, topology))
    command = " \\\n      ".join(['exec vllm serve "$MODEL"', *flags])
    return f"  {role})\n{exports}    {command}\n    ;;"


def _sidecar(topology: Topology) -> str:
    ec = "--ec-connector ec-nixl " if topology.num_encode else ""
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Before each of the {topology.num_decode} servers that answer, on its machine: requests come",
            f"# to port {CLIENT_PORT}, the engine listens on {ENGINE_PORT}. Only servers of endpoints.yaml are asked.",
            "set -euo pipefail",
            'cd "$(dirname "$0")"',
            f'exec tessera sidecar --port "${{SIDECAR_PORT:-{CLIENT_PORT}}}" '
            f'--model-server-port "${{PORT:-{ENGINE_PORT}}}" \\\n'
            f"  --kv-connector nixlv2 {ec}--secure-proxy=false --endpoints endpoints.yaml --metrics-port "
            '"${METRICS_PORT:-9091}"',
            "",
        ]
    )


def _router(topology: Topology, base: EngineProfile, title: str) -> str:
    names = {
        Kind.AGGREGATED: "aggregated",
        Kind.E_PD: "e-pd",
        Kind.P_D: "p-d",
        Kind.E_P_D: "e-p-d",
    }
    template = Template((_ROUTERS / f"{names[kind_of(topology)]}.yaml").read_text(encoding="utf-8"))
    return template.substitute(
        title=title,
        family=family_of(base).type,
        cache_gb=base.processor_cache_bytes >> 30,
        profile=base.name,
        rates=json.dumps(router_rates(base)),
    )


def router_rates(base: EngineProfile) -> dict[str, float]:
    """What ``ttft-cost-producer`` reckons with, from the profile; its own defaults are those of the fitted one."""
    costs = Costs(base)
    item_s = base.efficiency.vit_time_fraction * base.efficiency.vit_item_s

    def encode_s(num_embeds: int) -> float:
        """One picture's, without what every step pays."""
        item = MediaSegment("", num_embeds, num_embeds)
        return costs.encode_s([item, item]) - costs.encode_s([item]) - item_s

    # Two equations: linear and quadratic in the embeddings.
    small, large = encode_s(1000), encode_s(10_000)
    squared = (large - 10 * small) / (10_000**2 - 10 * 1000**2)
    linear = (small - squared * 1000**2) / 1000
    tokens = 1_000_000
    prefill_s = (costs.fixed_s(2 * tokens) - costs.fixed_s(tokens)) / tokens
    return {
        "prefillTokensPerS": float(f"{_USED_FRACTION / prefill_s:.4g}"),
        "encodeSPerItem": float(f"{item_s:.4g}"),
        "encodeSPerEmbed": float(f"{linear:.3g}"),
        "encodeSPerEmbedSquared": float(f"{squared:.3g}"),
        "processingSPerMegapixel": float(f"{base.front_end.processing_s_per_pixel * 1e6:.3g}"),
    }


def _endpoints(topology: Topology) -> str:
    lines = [
        "# PLACEHOLDERS: nobody has an address 192.0.2.x. Put your servers' own IP addresses in their place.",
        "endpoints:",
    ]
    return "\n".join([*lines, *_entries(topology), ""])


def _entries(topology: Topology) -> Iterator[str]:
    number = 0
    for row in servers_of(topology):
        labels = "" if row["role"] == "all" else f", labels: {{llm-d.ai/role: {row['role']}}}"
        prefix = "server" if row["role"] == "all" else row["role"]
        for index in range(row["servers"]):
            number += 1
            yield f'  - {{name: {prefix}-{index}, address: 192.0.2.{number}, port: "{CLIENT_PORT}"{labels}}}'
