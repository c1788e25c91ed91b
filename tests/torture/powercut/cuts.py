"""One run of power cuts: a recording of a gateway and one of a stream, each cut at many moments."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.torture.powercut.landing import cut_landing, record_landing
from tests.torture.powercut.recording import record
from tests.torture.powercut.recovery import Moment, cut, draw
from tests.torture.powercut.trace import Event
from tests.torture.readers import readers

Tell = Callable[[str], None]


def cut_power(cuts: int, seed: int, messages: int, out: Path, tell: Tell) -> bool:
    """Record once and cut often; return whether every promise was kept, and keep the folders where one was not."""

    def broken(what: str, events: Sequence[Event], judge: Callable[[Moment, Path], list[str]]) -> int:
        count = 0
        for number, moment in enumerate(draw(events, cuts, seed)):
            folder = out / f"{what}-{number}"
            faults = judge(moment, folder)
            for fault in faults:
                tell(f"{folder.name}: {moment}: {fault}")
            count += bool(faults)
            if not faults:
                shutil.rmtree(folder)
        tell(f"{what}: {len(events):,} writes, syncs and changes of names; {cuts} power cuts, {count} broke a promise")
        return count

    out.mkdir(parents=True)
    gateway = record(out, messages)
    tell(f"messages recorded: {dict(gateway.ledger.counts())}")
    count = broken("gateway", gateway.events, lambda moment, folder: cut(gateway, moment, folder))
    landing = record_landing(out / "landing", messages)
    with readers() as everybody:
        count += broken(
            "stream", landing.events, lambda moment, folder: cut_landing(landing, moment, folder, everybody)
        )
    return not count
