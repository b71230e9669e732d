"""Let PyPI's torchvision be imported beside a torch for CPUs. Run in the engine's environment.

Its compiled half needs CUDA and does not load, so that two of its operators are never defined and a later module fails
on them. Their schemas are defined here. Nothing of the engine calls them: what it needs of torchvision is Python.
"""

import importlib.util
from pathlib import Path

MARK = "# operators that a build for CUDA cannot bring along"
SHIM = f"""

{MARK}
if not _has_ops():
    import torch

    for _operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{{_operator}}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
"""

found = importlib.util.find_spec("torchvision")
if found is None or found.submodule_search_locations is None:
    raise SystemExit("torchvision is not installed in this environment")
extension = Path(found.submodule_search_locations[0]) / "extension.py"
text = extension.read_text()
if MARK not in text:
    extension.write_text(text + SHIM)
