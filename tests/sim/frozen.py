"""Digests of 500 seeds of each protocol, in blocks of ten: what a change that should change nothing must leave equal.

python -m tests.sim.frozen      freezes them anew; say in the commit why each block that changes does
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from fairway.protocols import NAMES
from fairway.sim.swarm import run_seed

FILE = Path(__file__).parent / "frozen.json"
SEEDS = 500
BLOCK = 10


def block_digest(protocol: str, block: int) -> str:
    """Run the seeds of a block and return one short hash of their digests."""
    digests = [run_seed(protocol, seed).digest for seed in range(block * BLOCK, (block + 1) * BLOCK)]
    return blake2b("".join(digests).encode(), digest_size=4).hexdigest()


def frozen(protocol: str) -> list[str]:
    """Return the hashes of all blocks as they were frozen."""
    blocks: list[str] = json.loads(FILE.read_text())[protocol]
    return blocks


def changed_seeds(protocol: str, blocks: Iterable[int]) -> list[str]:
    """Return the ranges of seeds of which at least one run differs from what was frozen."""
    known = frozen(protocol)
    changed = [block for block in blocks if block_digest(protocol, block) != known[block]]
    return [f"{block * BLOCK} to {(block + 1) * BLOCK - 1}" for block in changed]


if __name__ == "__main__":
    found = {name: [block_digest(name, block) for block in range(SEEDS // BLOCK)] for name in NAMES}
    FILE.write_text(json.dumps(found).replace(": [", ":\n[").replace("], ", "],\n") + "\n")
