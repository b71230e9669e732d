"""What would a vLLM server answer, and when? An HTTP server without a GPU that speaks as vLLM 0.32 does."""

from tessera.emulator.faults import Fault, FaultMode
from tessera.emulator.server import Emulator, run
from tessera.emulator.settings import EmulatorSettings, KVEventSettings

__all__ = ["Emulator", "EmulatorSettings", "Fault", "FaultMode", "KVEventSettings", "run"]
