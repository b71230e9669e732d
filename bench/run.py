"""What does ``make bench`` run? Every benchmark, one after another, each in a process of its own.

    python bench/run.py [NAME ...]

Results go to ``bench/results/NAME.json``; about 14 minutes for all of them, five more for the article and
the better part of an hour for the fleet. Ends with 1 where one has failed, after the others have run.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exact import MODEL_DIR

HERE = Path(__file__).parent
Result = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """One script and what its result says in a line."""

    name: str
    headline: Callable[[Result], str]
    write_option: tuple[str, ...] = ("--write",)
    needs: Path | None = None
    """A folder without which it is left out."""

    @property
    def result_path(self) -> Path:
        return HERE / "results" / f"{self.name}.json"

    @property
    def command(self) -> list[str]:
        """Relative to the repository: the result keeps it."""
        result = self.result_path.relative_to(HERE.parent)
        return [sys.executable, f"bench/{self.name}.py", *self.write_option, str(result)]


def _decide(result: Result) -> str:
    measured = result["by_scorers_and_num_endpoints"].items()
    medians = ", ".join(f"by {name} {fleets['64']['median_us']:.0f}" for name, fleets in measured)
    return f"us a decision at 64 endpoints: {medians}"


def _read(result: Result) -> str:
    return ", ".join(f"{name}: {each['read_us'] / 1000:.2f} ms" for name, each in result["by_body"].items())


def _media(result: Result) -> str:
    slowest = result["slowest_hostile"]
    formats = ", ".join(f"{name} {each['header_us']:.0f}" for name, each in result["by_format"].items())
    return f"us a header: {formats}; slowest hostile picture {slowest['header_ms']} ms ({slowest['name']})"


def _scrape(result: Result) -> str:
    return f"{result['tessera_uvloop']['core_fraction']:.2f} of a core for 100 endpoints every 50 ms"


def _first_token(result: Result) -> str:
    costs = {name: each["us_per_request"] for name, each in result["Envoy CPU"].items()}
    return f"Envoy {costs['with_tag']} us a request with the tag, {costs['without_tag']} without"


def _extproc(result: Result) -> str:
    cell = next(each for each in result["cells"] if each["num_clients"] == 16)
    ways = [f"{name} {each['envoy_us']:.0f} + {each['picker_us']:.0f}" for name, each in cell["ways"].items()]
    return f"{cell['body']}, 16 clients, us of Envoy + picker: {', '.join(ways)}"


def _families(result: Result) -> str:
    images = sorted((each["image_us"], name) for name, each in result["families"].items() if "image_us" in each)
    return f"{len(result['families'])} families; a picture costs {images[0][0]} us to {images[-1][0]} ({images[-1][1]})"


def _prefix(result: Result) -> str:
    figures = result["by_prompt"]["4,000 tokens, 3 images"]["atoms_and_match_by_num_endpoints"]["64"]
    slowest = max(figures.values())
    return f"{slowest:.0f} us for 4,000 tokens at 64 endpoints, {result['memory']['bytes_per_entry']:.0f} B an entry"


def _blocks(result: Result) -> str:
    keys = result["keys"]["sha256"]
    matched, rate = result["match"]["wholly_held_ms"], result["events"]["direct_events_per_s"]
    cost = f"{keys['keys_ms']} ms for 4,000 tokens, {keys['long_keys_ms']} for 100,000"
    return f"keys {cost}; matched in {matched} ms at 64 endpoints; {rate:,.0f} events a second"


def _article(result: Result) -> str:
    sets = result["by_seeds"].items()
    missed = ", ".join(f"{len(each['beyond'])} of {each['num_cells']} of the {name} seeds" for name, each in sets)
    return f"cells beyond their bounds: {missed}; {result['by_seeds']['fitted']['seconds']} s"


def _fleet(result: Result) -> str:
    worst, met = result["worst_ttft_p90_ratio"], "met" if result["meets_bound"] else "missed"
    return f"TTFT p90 over llm-d's, at worst below saturation: {worst:.2f}; bound {met}"


def _memory(result: Result) -> str:
    grown, bodies = result["growth_bytes"] / 1e6, result["bodies_bytes"] / 1e6
    return f"{grown:.0f} MB beyond idle at the peak of {result['num_clients']} bodies, {bodies:.0f} MB, sent at once"


def _exact(result: Result) -> str:
    new, seen = result["exact_new_ms"], result["exact_seen_ms"]
    return f"{new} ms for 3 pictures and 1,300 tokens, {seen} where most was seen; {result['requests_per_core_s']}/s"


def _sidecar(result: Result) -> str:
    requests = ", ".join(f"{name}: {us / 1000:.2f}" for name, us in result["request_us"].items())
    added = next(iter(result["first_byte_ms"].values()))["added"]
    return f"ms of CPU a request: {requests}; {result['chunk_us']} us a chunk; {added} ms to the first byte"


def _live_sim(result: Result) -> str:
    errors = [f"{name} {each['ttft_p50_error']:+.1%}" for name, each in result["by_policy"].items()]
    return f"median TTFT, live over simulated: {', '.join(errors)}"


BENCHES = (
    Bench("decide", _decide),
    Bench("prefix", _prefix),
    Bench("read", _read),
    Bench("media", _media),
    Bench("families", _families),
    Bench("scrape", _scrape),
    Bench("first_token", _first_token, write_option=()),
    Bench("blocks", _blocks),
    Bench("exact", _exact, needs=MODEL_DIR),
    Bench("article", _article),
    Bench("fleet", _fleet),
    Bench("sidecar", _sidecar),
    Bench("live_sim", _live_sim),
    Bench("memory", _memory),
    Bench("extproc", _extproc),
)


def run(bench: Bench, number: int, total: int) -> bool:
    """Run one, with a line before it and one after it; whether it succeeded."""
    if bench.needs is not None and not bench.needs.is_dir():
        print(
            f"[{number}/{total}] {bench.name}: left out, there is no {bench.needs}; make test-vllm makes it", flush=True
        )
        return True
    print(f"[{number}/{total}] {bench.name} ...", flush=True)
    began = time.monotonic()
    # What it prints is in its result, too.
    done = subprocess.run(bench.command, cwd=HERE.parent, stdout=subprocess.DEVNULL, check=False)
    took = f"{time.monotonic() - began:.0f} s"
    if done.returncode != 0:
        print(f"      failed with status {done.returncode} after {took}", flush=True)
        return False
    print(f"      {took}: {bench.headline(json.loads(bench.result_path.read_text()))}", flush=True)
    return True


def main() -> None:
    wanted = set(sys.argv[1:])
    if unknown := wanted - {bench.name for bench in BENCHES}:
        sys.exit(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(b.name for b in BENCHES)}")
    chosen = [bench for bench in BENCHES if not wanted or bench.name in wanted]
    succeeded = [run(bench, number, len(chosen)) for number, bench in enumerate(chosen, 1)]
    sys.exit(0 if all(succeeded) else 1)


if __name__ == "__main__":
    main()
