"""Does the code stay within the limits of the house? Prints every breach and exits 1 if there is one."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tessera"
MAX_FOLDER_DEPTH = 3
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "base", "manager", "managers", "constants"}
CORE_MAY_IMPORT = {
    "msgspec": {"dialects", "plugin.py", "matching/kv_wire.py", "flow"},
    "xxhash": {"media/digests.py"},
}
CORE_ONE_FILE = {"pybase64", "blake3", "tokenizers", "jinja2", "PIL"}
CORE_FORBIDDEN = {
    *("asyncio", "time", "datetime", "random", "threading", "socket", "logging", "os", "grpc", "yaml", "pydantic"),
    *("aiohttp", "prometheus_client", "rich", "typer"),
}


def breaches() -> Iterator[str]:
    """One line for each breach."""
    users: dict[str, set[str]] = {}
    for path in tracked("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        where = path.relative_to(ROOT)
        yield from _names(where)
        if not path.is_relative_to(ROOT / "src"):
            continue
        tree = ast.parse(path.read_text())
        yield from _sizes(where, path.read_text(), tree)
        if path.is_relative_to(PACKAGE / "core") or path.is_relative_to(PACKAGE / "engine"):
            yield from _imports(path, tree, users)
    for module, files in users.items():
        if module in CORE_ONE_FILE and len(files) > 1:
            yield f"{module} is imported by {', '.join(sorted(files))}; one file of core may import it"


def tracked(pattern: str) -> list[Path]:
    """Files that git tracks, or would if they were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).exists()]


def _names(where: Path) -> Iterator[str]:
    for part in (*where.parts[:-1], where.stem):
        if part in FORBIDDEN:
            yield f"{where}: {part!r} says nothing about what is inside; name the thing"
    if where.is_relative_to("src/tessera") and len(where.parts) - 3 > MAX_FOLDER_DEPTH:
        yield f"{where}: {len(where.parts) - 3} folders below the package, at most {MAX_FOLDER_DEPTH}"


def _sizes(where: Path, text: str, tree: ast.Module) -> Iterator[str]:
    num_lines = text.count("\n")
    if num_lines > MAX_FILE_LINES:
        yield f"{where}: {num_lines} lines, at most {MAX_FILE_LINES}"
    if not ast.get_docstring(tree):
        yield f"{where}: no docstring that says which question it answers"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{where}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def _imports(path: Path, tree: ast.Module, users: dict[str, set[str]]) -> Iterator[str]:
    where = path.relative_to(PACKAGE / "core") if path.is_relative_to(PACKAGE / "core") else path.relative_to(PACKAGE)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in {each.split(".")[0] for each in names}:
            if name in CORE_FORBIDDEN:
                yield f"{where}:{node.lineno}: core may not import {name}"  # type: ignore[attr-defined]
            if name in CORE_MAY_IMPORT and not CORE_MAY_IMPORT[name] & {str(where), where.parts[0]}:
                yield f"{where}: {name} belongs to {', '.join(sorted(CORE_MAY_IMPORT[name]))}"
            if name in CORE_ONE_FILE:
                users.setdefault(name, set()).add(str(where))


if __name__ == "__main__":
    found = list(breaches())
    print("\n".join(found) or "limits: all held")
    sys.exit(bool(found))
