"""How are the gRPC stubs in src/tessera/live/extproc made from tools/proto?

Run ``python tools/generate_protos.py [OUTPUT_ROOT]``; ``make proto`` does. ``OUTPUT_ROOT`` is the folder that holds
the ``tessera`` package, ``src`` by default; the test that keeps the stubs current gives another. The version of
grpcio-tools stands in the first lines of each stub and sets the oldest protobuf runtime that may load it.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = "tessera/live/extproc"
_PROTOS = ("access_log.proto", "ext_proc.proto")


def generate(output_root: Path) -> None:
    """Write ``*_pb2.py`` and ``*_pb2.pyi`` below ``output_root``; raises RuntimeError when protoc refuses."""
    arguments = [
        "protoc",
        # The virtual path is what gives the descriptors, and so the imports, the name of our package.
        f"--proto_path={_PACKAGE}={_ROOT / 'tools' / 'proto'}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--python_out={output_root}",
        f"--pyi_out={output_root}",
        *(f"{_PACKAGE}/{name}" for name in _PROTOS),
    ]
    status = protoc.main(arguments)
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "src")
