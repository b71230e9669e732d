"""Which policy is meant? One that is shipped, by name, or a configuration file."""

from pathlib import Path
from typing import Final, Literal

from tessera.config.load import LoadedConfig, load_file
from tessera.config.shipped import shipped
from tessera.core.errors import ConfigError, Problem
from tessera.sim.workload import block

FOLDER: Final = Path(__file__).parent / "policies"
"""The policies that are shipped for comparison."""
_EXAMPLES: Final = ("tessera-multimodal", "tessera-overload")
"""Shipped examples that are policies too: what a router does that is given no configuration, and that with a limit."""

_FOR_POOLS: Final = ("e-pd-spread", "llm-d-e-pd", "llm-d-e-p-d", "llm-d-p-d")
"""Shipped examples for servers that divide the stages."""

FirstTokenWord = Literal["body", "counter", "predicted"]


@block
class Policy:
    """One router configuration under test."""

    config: str
    """A shipped policy's name, or the path of a configuration, relative to the scenario file."""
    name: str = ""
    """By what reports call it; the name of the shipped policy or of the file where it is left out."""
    first_token: FirstTokenWord = "counter"
    """How the router learns of first tokens: from the answer's ``body``, where its gateway passes bodies;
    from the engine's ``counter``, as with the generated Envoy; or ``predicted``."""
    tells_cached_tokens: bool = False
    """Whether engines tell cached tokens in usage (vLLM's ``--enable-prompt-tokens-details``)."""

    @property
    def title(self) -> str:
        """What reports call it."""
        return self.name or Path(self.config).stem

    def path(self, folder: Path) -> Path:
        """Its file; ``folder`` is the scenario's.

        Raises:
            ConfigError: there is no such policy.
        """
        if self.config in (*_EXAMPLES, *_FOR_POOLS):
            return shipped(f"{self.config}.yaml")
        own = FOLDER / f"{self.config}.yaml"
        path = own if own.is_file() else folder / self.config
        if not path.is_file():
            known = ", ".join([*shipped_policies(), *_FOR_POOLS])
            raise ConfigError(
                [Problem("policies", f"no policy {self.config!r}: no such file, and shipped are {known}")]
            )
        return path

    def load(self, folder: Path) -> LoadedConfig:
        """The configuration with new plugin instances."""
        return load_file(self.path(folder))


_PASS_BODIES: Final = ("kubernetes-service", "llm-d-multimodal", "llm-d-e-pd", "llm-d-e-p-d", "llm-d-p-d")
"""Policies of gateways that show the router the answers' bodies."""


def shipped_policies() -> list[str]:
    """Names of those for servers that all do everything, sorted."""
    return sorted([*_EXAMPLES, *(path.stem for path in FOLDER.glob("*.yaml"))])


def is_shipped(config: str) -> bool:
    """Whether it is the name of a shipped policy, those for servers that divide the stages among them."""
    return config in _FOR_POOLS or config in shipped_policies()


def named(config: str) -> Policy:
    """The policy of a name or path, with the first-token source that its own gateway has."""
    return Policy(config=config, first_token="body" if config in _PASS_BODIES else "counter")
