"""``tessera emulate``: an OpenAI-compatible server without a GPU that stands in for vLLM."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.options import ModelDirOption, err, said_plainly
from tessera.core.errors import ConfigError, Problem
from tessera.core.matching.block_keys import HashAlgorithm
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.emulator.served_model import read_prompt_rules
from tessera.emulator.server import run
from tessera.emulator.settings import (
    DEFAULT_PROFILE,
    FASTEST,
    LONGEST_LEASE_S,
    SLOWEST,
    EmulatorSettings,
    KVEventSettings,
)
from tessera.engine.profiles import PROFILES, EngineProfile, with_role
from tessera.engine.roles import Role

ProfileOption = Annotated[
    str, typer.Option(help=f"Hardware and model: {', '.join(PROFILES)}. The first is fitted, the others derived.")
]
RoleOption = Annotated[
    Role | None,
    typer.Option(
        help="Part in a fleet that works in stages: encode only encodes, prefill and prefill-decode take embeddings, "
        "prefill hands KV on, decode takes it. As the profile says where it is left out.",
        show_default=False,
    ),
]
EmbeddingsFolderOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder that encoders and their consumers share (vLLM's ECExampleConnector); without it each encoder "
        "keeps embeddings itself and tells its address (ECCPUConnector with NIXL).",
        show_default=False,
    ),
]
KVLeaseOption = Annotated[
    float, typer.Option(help="Seconds that KV is kept for a peer to pull.", min=0.001, max=LONGEST_LEASE_S)
]
KVEventsPortOption = Annotated[
    int | None, typer.Option(help="Publish KV events there; 0 asks the system.", min=0, max=65535, show_default=False)
]
KVReplayPortOption = Annotated[
    int | None,
    typer.Option(help="Replay KV events there; else the system is asked.", min=0, max=65535, show_default=False),
]
HashSeedOption = Annotated[
    str | None, typer.Option(help="The PYTHONHASHSEED that block hashes begin with.", show_default=False)
]
HashAlgorithmOption = Annotated[
    HashAlgorithm | None,
    typer.Option("--prefix-caching-hash-algo", help="How blocks are hashed; else sha256.", show_default=False),
]


def emulate(
    model: Annotated[
        str | None, typer.Option(help="The served model's name; else that of the profile's model.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 asks the system.", min=0, max=65535)] = 8000,
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    profile: ProfileOption = DEFAULT_PROFILE,
    role: RoleOption = None,
    embeddings_folder: EmbeddingsFolderOption = None,
    kv_lease_s: KVLeaseOption = 30.0,
    speed: Annotated[
        float, typer.Option(help="How many times faster than the profile says.", min=SLOWEST, max=FASTEST)
    ] = 1.0,
    model_dir: ModelDirOption = None,
    kv_events_port: KVEventsPortOption = None,
    kv_replay_port: KVReplayPortOption = None,
    hash_seed: HashSeedOption = None,
    hash_algorithm: HashAlgorithmOption = None,
) -> None:
    """Serve an emulated vLLM: its API, metrics, KV events and errors, with a model of its engine behind them.

    Requests wait, share the batch and find caches as the model of the engine says: KV blocks, encoder embeddings,
    processed pictures. With --model-dir, prompts have the served model's own token ids, so that KV events name blocks
    as vLLM names them; else 4 bytes of text are a token and pictures cost what they cost on Qwen3-VL. Prints one JSON
    line with its ports when ready. Servers of several roles hand embeddings and KV on as vLLM's do, by their HTTP
    ports. A picture without content whose embeddings nobody has ends the process.

        tessera emulate --profile h200-tp2-qwen3-vl-32b --speed 10 --port 8000

        tessera emulate --profile h200-tp1-qwen3-vl-32b-encoder --port 8001
    """
    with said_plainly():
        engine = _profile(profile, role)
        rules = read_prompt_rules(model_dir) if model_dir else None
        settings = EmulatorSettings(
            model=model or engine.model.name,
            host=bind,
            port=port,
            profile=engine,
            speed=speed,
            family=rules.family if rules else Qwen3VL(),
            renderer=rules.renderer if rules else None,
            kv_events=_kv_events(kv_events_port, kv_replay_port, hash_seed, hash_algorithm),
            embeddings_folder=_usable(embeddings_folder),
            kv_lease_s=kv_lease_s,
        )
        if not asyncio.run(run(settings, say=typer.echo)):
            err.print("The engine is dead: a picture without content has embeddings nowhere, as in vLLM.")
            raise typer.Exit(1)


def _kv_events(
    port: int | None, replay_port: int | None, hash_seed: str | None, hash_algorithm: HashAlgorithm | None
) -> KVEventSettings | None:
    """What is published, if anything; what says how is refused where nothing is."""
    of_events = {
        "--kv-replay-port": replay_port,
        "--hash-seed": hash_seed,
        "--prefix-caching-hash-algo": hash_algorithm,
    }
    if port is None:
        given = [option for option, value in of_events.items() if value is not None]
        if given:
            raise ConfigError([Problem(given[0], "is of KV events, which are not published; add --kv-events-port")])
        return None
    return KVEventSettings(
        port=port,
        replay_port=replay_port or 0,
        hash_seed=hash_seed or "",
        hash_algorithm=hash_algorithm or HashAlgorithm.SHA256,
    )


def _usable(folder: Path | None) -> Path | None:
    """The folder, which is there then.

    Raises:
        ConfigError: it cannot be one, or nothing can be written there.
    """
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            what = f"cannot write into {str(folder)!r}: {error.strerror}; name a folder that encoders may write into"
            raise ConfigError([Problem("--embeddings-folder", what)]) from None
    return folder


def _profile(name: str, role: Role | None) -> EngineProfile:
    if name not in PROFILES:
        raise ConfigError([Problem("--profile", f"got {name!r}, expected one of {', '.join(PROFILES)}")])
    profile = PROFILES[name]
    if role is not None and role is not profile.role is Role.ENCODE:
        raise ConfigError(
            [Problem("--role", f"got {role.value!r}, but {name} has no language model; name another profile")]
        )
    return with_role(profile, role) if role else profile
