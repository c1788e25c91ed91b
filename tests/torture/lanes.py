"""The two lanes: each starts its service, injects a fault, and starts it again, until its faults are used up.

An end by SIGKILL is what a lane waits for, whoever sent it. Any other end is a failure, unless the disk was full
meanwhile.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic, sleep

from fairway.demo.services import GatewayService, Service, ServiceFailed
from fairway.store.crashpoints import VARIABLE
from tests.torture.disk import Disk
from tests.torture.plan import BOTH, COMPACTION, FILL, PAUSE, STREAM, Fault

LOOK_S = 0.01
POINT_S = 60.0
"""How long a crash point is waited for; one that is not passed so often becomes a free instant."""
FIRST_BATCH_S = 600.0
"""Long, for a machine with other work: a stream that is killed before it has landed anything proves little."""
COMPACT_S = 120.0
STARTS_MAX = 20
"""How often a service is started again that found no room."""

CLAIMED = "was killed while it did"

Tell = Callable[[str], None]


class Tally:
    """What was done, counted by both lanes."""

    def __init__(self, tell: Tell) -> None:
        self._lock = threading.Lock()
        self._tell = tell
        self.kills: Counter[str] = Counter()
        self.pauses = 0
        self.failures: list[str] = []
        self.slowest_start_s = 0.0
        self.over = threading.Event()
        """Set when nothing more may be begun."""

    def killed(self, who: str, how: str) -> None:
        """Count an end by SIGKILL."""
        with self._lock:
            self.kills[who] += 1
            self._tell(f"{sum(self.kills.values()):4} killed {who} {how}")

    def failure(self, what: str) -> None:
        """Record a broken promise and end the run."""
        with self._lock:
            self.failures.append(what)
            self._tell(f"FAILED {what}")
        self.over.set()


class Lane(threading.Thread):
    """Injects one fault after another."""

    def __init__(self, faults: Sequence[Fault], tally: Tally, disk: Disk) -> None:
        super().__init__(daemon=True)
        self._faults = faults
        self._tally = tally
        self._disk = disk
        self.spent = threading.Event()
        """Set when all faults of this lane were injected."""
        self.other: Lane | None = None
        """As long as it has faults left, this one's service runs."""

    def run(self) -> None:
        try:
            for fault in self._faults:
                if self._tally.over.is_set():
                    return
                self.inject(fault)
            self.spent.set()
            while self._others_inject():
                self.keep()
        except Exception as error:
            self._tally.failure(f"{type(error).__name__}: {error}")
        finally:
            self.spent.set()

    def _others_inject(self) -> bool:
        return self.other is not None and not self.other.spent.is_set() and not self._tally.over.is_set()

    def keep(self) -> None:
        """Check that the service runs while the other lane kills, and note whether it is killed too."""
        raise NotImplementedError

    def inject(self, fault: Fault) -> None:
        raise NotImplementedError

    def _wait(self, service: Service, seconds: float) -> None:
        """Wait so long, or until the service has ended."""
        until_s = monotonic() + seconds
        while service.running and monotonic() < until_s and not self._tally.over.is_set():
            sleep(LOOK_S)

    def _settle(self, service: Service, fault: Fault, began_s: float) -> bool:
        """Check how a service ended; return whether it was killed."""
        if service.code == -signal.SIGKILL:
            self._tally.killed(fault.target, str(fault))
            return True
        if not self._disk.was_full_since(began_s):
            self._tally.failure(f"{fault}: it left with {service.code}: {service.lines[-3:]}")
        return False


class GatewayLane(Lane):
    """Serves, and is killed."""

    def __init__(self, gateway: GatewayService, faults: Sequence[Fault], tally: Tally, disk: Disk) -> None:
        super().__init__(faults, tally, disk)
        self._gateway = gateway

    def keep(self) -> None:
        served = Fault(target=BOTH)
        if not self._gateway.running and not self.serve(served):
            return
        began_s = monotonic()
        while self._gateway.running and self._others_inject():
            sleep(LOOK_S)
        if not self._gateway.running:
            self._settle(self._gateway, served, began_s)

    def inject(self, fault: Fault) -> None:
        gateway = self._gateway
        if not gateway.running or fault.point:
            gateway.kill()
            if not self.serve(fault):
                return
        began_s = monotonic()
        if fault.point:
            self._wait(gateway, POINT_S)
        else:
            self._wait(gateway, fault.after_s)
        if gateway.running and fault.how == PAUSE:
            self._tally.pauses += 1
            gateway.pause(fault.for_s)
        elif gateway.running and fault.how == FILL:
            self._disk.fill(fault.for_s)
        else:
            gateway.kill()
            self._settle(gateway, fault, began_s)

    def serve(self, fault: Fault) -> bool:
        """Start the gateway; return whether it listened before it was killed."""
        for _ in range(STARTS_MAX):
            began_s = monotonic()
            try:
                took_s = self._gateway.serve(**{VARIABLE: fault.point})
            except ServiceFailed:
                self._gateway.kill()
                if self._settle(self._gateway, fault, began_s) or self._tally.over.is_set():
                    return False
                sleep(1.0)
            else:
                self._tally.slowest_start_s = max(self._tally.slowest_start_s, took_s)
                return True
        raise ServiceFailed(f"the gateway did not start {STARTS_MAX} times")


class StreamLane(Lane):
    """Lands, and is killed; between two streams a compaction may be."""

    def __init__(
        self, stream: Service, gateway: GatewayService, lake: str, faults: Sequence[Fault], tally: Tally, disk: Disk
    ) -> None:
        super().__init__(faults, tally, disk)
        self._stream = stream
        self._gateway = gateway
        self._lake = lake

    def inject(self, fault: Fault) -> None:
        if fault.target == COMPACTION:
            self._compact(fault)
            return
        stream = self._stream
        while not self._tally.over.is_set():
            began_s = monotonic()
            if not stream.running or fault.point:
                stream.kill()
                stream.start(**{VARIABLE: fault.point})
            if self._injected(fault) or self._settle(stream, fault, began_s):
                return

    def keep(self) -> None:
        began_s = monotonic()
        if not self._stream.running:
            self._stream.start()
        while self._stream.running and self._others_inject():
            sleep(LOOK_S)
        if not self._stream.running:
            self._settle(self._stream, Fault(target=STREAM), began_s)

    def _injected(self, fault: Fault) -> bool:
        """Wait for the point or the instant and inject the fault; return whether the stream goes on."""
        stream = self._stream
        if fault.point:
            self._wait(stream, FIRST_BATCH_S)
        else:
            self._first_batch()
            self._wait(stream, fault.after_s)
        if stream.running and fault.how == PAUSE:
            self._tally.pauses += 1
            stream.pause(fault.for_s)
            return True
        if stream.running and fault.target == BOTH:
            self._gateway.kill()
        stream.kill()
        return False

    def _first_batch(self) -> None:
        until_s = monotonic() + FIRST_BATCH_S
        while self._stream.running and monotonic() < until_s and not self._tally.over.is_set():
            if any(line.startswith("version ") for line in list(self._stream.lines)):
                return
            sleep(LOOK_S)

    def _compact(self, fault: Fault) -> None:
        """Have a compaction die at a crash point; one that finds too little to do ends by itself."""
        self._stream.kill()
        began_s = monotonic()
        with Service(["compact", "--lake", self._lake]) as compaction:
            compaction.start(**{VARIABLE: fault.point})
            self._wait(compaction, COMPACT_S)
            compaction.kill()
            # In an object store one that was killed before keeps others from compacting, for an hour.
            refused = compaction.code == 1 and any(CLAIMED in line for line in compaction.lines)
            if compaction.code != 0 and not refused:
                self._settle(compaction, fault, began_s)
