"""A congestion controller that measures the path instead of waiting for losses, in the manner of BBR.

Two numbers describe a path: the *rate* at which its narrowest link delivers (`delivery.py`), and the shortest *round
trip*. Their product is what fits on the path without a queue. Losses do not describe it: a radio link loses packets at
any rate. So packets leave at the rate, times a gain that depends on the phase, and little more than a product is in
flight:

    STARTUP      2.77   until the rate has not grown by a quarter for three round trips, or the queue runs over;
                        twice what the latest one that raised it delivered may be in flight, however long that took,
                        where acknowledgements name packets
    DRAIN        0.35   until what startup left in the queue is gone
    UP           1.25   a round trip or more, as long as it raises the rate: is there more?
    DOWN         0.75   until the queue that this made is gone
    CRUISE       1      four to seven round trips; how many differs from flow to flow, so that two do not probe in step
    ROUND TRIP   1      half a product in flight as long as that makes the round trip shorter, after ten seconds without
                        a short one, or where the path may have got longer

*Loss of the path.* The rate counts what is delivered, so a path that loses one packet in ten must be sent more. How
much it loses is measured in DOWN: a loss that stays when the sender slows down is the path's, and one that goes away
was the sender's own. The pace makes up for the former, and so does what is in flight: a lost packet is, until that is
noticed. Where acknowledgements are marks, a peer without room looks like such a path, and less is made up for.

*A long queue* shows in two round trips in a row whose shortest samples are half as long again as the shortest of all.
(One is as often a busy computer's, or a request that was lost.) While there is a queue, what is delivered is the rate
itself, so the rate was measured too high: the path delivers what it delivered in that round trip. Where packets are
lost as well, more than one in fifty, that is *congestion*: of that rate the sender's share of the losses is taken off,
too. Then the queue is drained. A rate that has just grown in STARTUP or UP is no sign of a queue: what waits in one is
delivered no faster. If the queue does not get shorter, the rate was still too high: what was delivered while draining
is taken for it, and sent at half of that. Nothing else cuts the rate: loss alone never does.

*No queue, and a longer round trip* all the same is jitter. Slowing down by a quarter takes half a round trip off within
two. If that makes a round trip no shorter which is not half as long again, and all that leaves arrives, then there is
nothing to drain.

*A longer path* is no queue either (`longer.py`). A round trip that gets longer in a step is believed at once. Where it
is only likely, in DRAIN or DOWN, it is looked for as after ten seconds (ROUND TRIP). If it stays as long, the rate is
what it was before.

*Others in the queue.* If it does not get shorter at all for five round trips of that, it is kept full by others, that
look for losses only. Then the rate is again what it was when draining began, delay says nothing until the next DOWN,
and two products may be in flight: with less the sender would get ever less beside them.

*Answers that wait at the peer* are no queue. What a later one overtook shows by how much they differ (the *spread*):
a queue keeps the order. What came after a silence has waited for others (`gathering.py`): a queue is never silent. What
the peer may hold back by the rules of the protocol is in flight as well, and so is on a short path what leaves while
one of the two ends is not scheduled.

All arithmetic is in integers, and nothing is random: a simulated run has the same digest everywhere. Packets are
counted, as by the other controllers.
"""

from __future__ import annotations

from fairway.core.recovery.congestion import BURST_US, INITIAL_PACKETS, MIN_PACKETS, SCALE, Controller, Departure
from fairway.core.recovery.delivery import BUNCHES, SECOND, DeliveryRate, Round
from fairway.core.recovery.gathering import BETWEEN, Gathering
from fairway.core.recovery.longer import LongerPath

STARTUP, DRAIN, UP, DOWN, CRUISE, ROUND_TRIP = range(6)

STARTUP_GAIN = 2_840
"""2.77 of 1,024: the least that lets the delivered rate double in a round trip."""
GAINS = (STARTUP_GAIN, 363, 1_280, 768, 1_024, 1_024)
"""By which the pace differs from the rate, by phase, in parts of 1,024."""
DEEP_GAIN = 512
"""The same in DOWN after congestion, and where the queue does not get shorter."""
CLOSE_GAIN = 1_280
"""Products in flight at the most, in parts of 1,024; in UP beyond what was in flight before."""
LOSSY_GAIN = 1_152
"""The same without what the path loses."""
CONTESTED_GAIN = 2_048
"""The same where others keep the queue full, so that the round trip is longer than it could be."""
GROWTH = 1_280
"""The rate grows if it is a quarter higher, in parts of 1,024."""
FULL_ROUNDS = 3
STILL_ROUNDS = 5
"""A queue that has not got shorter for so many round trips of DOWN is that of others."""
CRUISE_ROUNDS_MIN = 4
CRUISE_ROUNDS_SPREAD = 4
LEAST_FOR_US = 10_000_000
"""How long the shortest round trip is believed."""
LOSS_NOTICED = SCALE // 50
LOST_MANY = 8
"""With more lost than this, and one in eight, startup does not wait for the end of the round trip."""
LOSS_MADE_UP_MAX = SCALE // 2
"""Of a path that loses more no more than that is made up for."""
UNSURE_MADE_UP_MAX = SCALE // 4
"""The same where a peer that drops what it has no room for looks like a path that loses."""
LOSS_PACKETS = 512
"""How many packets the share of losses is measured over."""
CALM_ROUNDS = 3
"""After congestion: until then its losses are still being noticed."""
QUEUE_US_MIN = 4_000
"""A round trip that is longer by less says nothing: timers and scheduling take as long."""
HELD_PACKETS = 64
"""A peer that holds answers back does so for no more."""
SPREAD_SAMPLES = 128
BURST_PACKETS = 4
QUANTUM_US = 1_000
"""Packets that are due within this time leave together: a wake-up for each would cost more than it smooths."""


class Model(Controller):
    """Keeps the rate and the round trip of a path, and paces by them."""

    gathers = False
    measures = True
    certain_losses = 8
    """A path that loses a third both ways loses one packet in a hundred as often."""

    def __init__(self, window: int, held_us: int = 0) -> None:
        self._window_max = window
        self._held_us = held_us
        self._slack_us = QUEUE_US_MIN + held_us // 2
        """How long the two ends may take on a path that takes none."""
        self._delivery = DeliveryRate()
        self._lost = 0
        self._missing = self._tried = 0
        """Transmissions that were lost, and all of them, as measured in DOWN."""
        self.least_us = 0
        """The shortest round trip; 0 before the first."""
        self._least_at_us = 0
        self._latest_us = 0
        self._spread = self._spread_samples = 0
        """By how much acknowledgements were late that later ones overtook, in 1/1024 us, and the mean of how many."""
        self._gathering = Gathering(held_us)
        self._longer = LongerPath()
        self._front = self._front_us = 0
        """What left last of all that is acknowledged, and its round trip."""
        self._round = Round(0, 0, 0, 0)
        self._before_us = 0
        """The shortest sample of the round trip before."""
        self._was_down = False
        """The round trip before was one of DOWN, so its losses show in this one."""
        self._calm_rounds = 0
        """Round trips since startup or congestion."""
        self.phase = STARTUP
        self._gain = self._gain_before = STARTUP_GAIN
        """Now, and in the round trip before."""
        self._phase_rounds = self._still_rounds = 0
        """Round trips of the phase, and those in a row that did not get shorter."""
        # The rate when it last grew in startup, what a round trip delivered then, and for how long it has not.
        self._full_rate = self._full_flight = self._full_thirds = 0
        self._cruise_rounds = CRUISE_ROUNDS_MIN
        self._up_flight = self._up_rate = self._up_delivered = 0
        """What UP began with."""
        self._down_rate = self._queued_rate = 0
        """The rate when the queue began to be drained, and before it was taken for lower because of the queue."""
        self._is_bare = False
        """Slowing down made the round trip no shorter, and all that left arrived: there is nothing to drain."""
        self._contested = False
        """Others keep the queue full: it is there even when this sender slows down."""
        self._stalled = False
        """Nothing at all came back for long: only a few packets look whether the path is still there."""
        self._blocked = False
        """The window had no room when it was last asked for, or used."""
        self._cut_us = -1
        self._credit = BURST_PACKETS * SCALE
        self._credited_us = 0

    # The model.

    @property
    def rate(self) -> int:
        """What the path delivers, in 1/1024 packets a second."""
        return self._delivery.rate

    @property
    def product(self) -> int:
        """Packets that fit on the path, and wait at the peer, without a queue."""
        return self._delivery.rate * (self.least_us + self.spread_us) // (SCALE * SECOND)

    @property
    def spread_us(self) -> int:
        """How much longer than the shortest a round trip takes without a queue: by what was overtaken twice the mean,
        near the most, or by what waited for others."""
        return max(2 * self._spread // SCALE, self._gathering.us)

    @property
    def loss(self) -> int:
        """The share that the path loses at any rate, in parts of 1,024."""
        most = UNSURE_MADE_UP_MAX if self.cumulative else LOSS_MADE_UP_MAX
        return min(most, self._missing * SCALE // self._tried) if self._tried else 0

    @property
    def _held(self) -> int:
        """Packets that have arrived and are not yet acknowledged, because the peer holds answers back."""
        on_purpose = min(HELD_PACKETS, self.rate * self._held_us // (SCALE * SECOND))
        return max(min(self._delivery.bunch, self.product), on_purpose)

    @property
    def _flight_gain(self) -> int:
        """Products in flight at the most, in parts of 1,024: what the path loses is in flight until that is noticed."""
        return CLOSE_GAIN if self.cumulative else max(CLOSE_GAIN, SCALE * LOSSY_GAIN // (SCALE - self.loss))

    @property
    def window(self) -> int:
        """Packets in flight at the most."""
        if self._stalled:
            return min(MIN_PACKETS, self._window_max)
        product, held = self.product, self._held
        # On a short path it is the scheduling of the two ends that takes long.
        least = max(MIN_PACKETS, self.rate * self._slack_us // (SCALE * SECOND))
        if self.phase == STARTUP:
            waiting = held * STARTUP_GAIN // SCALE if self._held_us else held
            window = max(INITIAL_PACKETS, product * STARTUP_GAIN // SCALE + waiting, 2 * self._full_flight)
        elif self.phase == ROUND_TRIP:
            window = least = max(MIN_PACKETS, product // 2)
        elif self.phase == UP:
            window = max(product * self._flight_gain // SCALE + held, self._up_flight * CLOSE_GAIN // SCALE) + 1
        else:
            window = product * (CONTESTED_GAIN if self._contested else self._flight_gain) // SCALE + held + 1
        return min(max(window, least), self._window_max)

    def _pace(self) -> int:
        """Return how fast packets leave, in 1/1024 packets a second."""
        rate = self.rate
        if self.phase == STARTUP:
            rate = max(rate, INITIAL_PACKETS * SCALE * SECOND // self.least_us)
        # What slows down on purpose makes up for nothing, or it would not show whose the losses are.
        return rate * self._gain // (SCALE if self.phase in (DRAIN, DOWN) else SCALE - self.loss) + 1

    # What leaves.

    def room(self, in_flight: int, now_us: int) -> int:
        by_window = self.window - in_flight
        if by_window > 0 and self.least_us:
            self._earn(in_flight, now_us)
        self._blocked = by_window <= 0
        if by_window <= 0 or not self.least_us:
            return max(0, by_window)
        # With nothing in flight one may always leave: without it nothing would be measured any more.
        return max(not in_flight, min(by_window, self._credit // SCALE))

    def next_room_us(self, in_flight: int, now_us: int) -> int | None:
        by_window = self.window - in_flight
        if by_window <= 0 or not self.least_us:
            return None
        self._earn(in_flight, now_us)
        pace = self._pace()
        wanted = min(by_window * SCALE, max(SCALE, pace * QUANTUM_US // SECOND))
        return now_us + max(1, -(-(wanted - self._credit) * SECOND // pace))

    def sent(self, packets: int, in_flight: int, now_us: int) -> Departure:
        if self.least_us:
            self._earn(in_flight, now_us)
            # What left beyond the credit (repairs do not wait for it) holds up the rest for a round trip at the most.
            self._credit = max(self._credit - packets * SCALE, -max(self.product, MIN_PACKETS) * SCALE)
            self._blocked = in_flight + packets >= self.window
        return self._delivery.depart(in_flight, now_us)

    def _earn(self, in_flight: int, now_us: int) -> None:
        elapsed_us = now_us - self._credited_us
        if elapsed_us <= 0:
            return
        pace = self._pace()
        # Where answers come gathered, this end may sleep as well: what it could have sent meanwhile fits on the path.
        burst = max(BURST_PACKETS * SCALE, pace * max(BURST_US, min(self._gathering.us, self.least_us)) // SECOND)
        self._credit += elapsed_us * pace // SECOND
        self._credited_us = now_us
        if self._credit > burst:
            self._credit = burst
            if not self._blocked:
                self._delivery.starved(in_flight)

    # What comes back.

    def acknowledged(self, packets: int, in_flight: int, smoothed_rtt_us: int, now_us: int) -> None:
        return

    def delivered(
        self, packets: int, departure: Departure | None, order: int, in_flight: int, rtt_us: int, now_us: int
    ) -> None:
        delivery = self._delivery
        delivery.packets += packets
        self._stalled = False
        waited_us = self._waited_us(departure, rtt_us, now_us) if rtt_us else 0
        if rtt_us > 0 or (rtt_us < 0 and not self.least_us):
            self._take_round_trip(abs(rtt_us), waited_us, in_flight, now_us)
        if departure is None:
            return
        # A mark may have waited for a repair.
        if rtt_us and order >= self._front and not (self.cumulative and self._lost > self._round.lost):
            longer_us = self._longer.follow(abs(rtt_us), self._lost if self.cumulative else 0, now_us)
            if longer_us:
                self._lengthen(longer_us, now_us)
        if rtt_us > 0:
            self._take_order(order, rtt_us)
        delivery.take(
            packets, departure, self.least_us + self.spread_us, 1 if self.phase == STARTUP else BUNCHES, now_us
        )
        if not self.least_us:
            return
        self._round.limited = self._round.limited or departure.limited
        # What is delivered may be known so late that a round trip by count takes several.
        late = now_us - self._round.begin_us > 2 * max(self.least_us, self._latest_us) + self.spread_us
        over = now_us - self._round.begin_us >= self.least_us + self.spread_us
        came_back = departure.delivered >= self._round.delivered
        if self.phase == STARTUP and not self.cumulative:
            # Of answers that overtake each other the quick ones say little: as many as were in flight must be there.
            came_back = came_back and delivery.packets + self._lost >= self._round.enough
        if (over and came_back) or late:
            self._end_round(in_flight, now_us)
            delivery.end_round(departure, now_us)
        self._advance(in_flight, now_us)

    def _waited_us(self, departure: Departure | None, rtt_us: int, now_us: int) -> int:
        """Return how long an answer may have waited at the peer for others."""
        alone_us = 0
        # One that is not certain may have waited for a repair instead.
        if departure is not None and self.least_us and (rtt_us > 0 or self._lost == self._round.lost):
            alone_us = (departure.next_us or now_us) - departure.sent_us
        late_us = abs(rtt_us) - self.least_us
        gap_us = now_us - self._delivery.latest_us
        service_us = SCALE * SECOND // max(1, self.rate)
        return self._gathering.take(gap_us, service_us, max(0, rtt_us), alone_us, late_us)

    def _take_round_trip(self, rtt_us: int, waited_us: int, in_flight: int, now_us: int) -> None:
        if not self.least_us:
            self._credited_us = now_us
            self._round = Round(0, 0, self._delivery.packets + in_flight, now_us)
        self._latest_us = rtt_us
        self.least_us = min(self.least_us or rtt_us, rtt_us)
        self._longer.take(rtt_us)
        rtt_us -= waited_us
        if rtt_us <= self.least_us + (self.least_us >> 4):
            self._least_at_us = now_us
        self._round.least_us = min(self._round.least_us or rtt_us, rtt_us)

    def _lengthen(self, rtt_us: int, now_us: int) -> None:
        """Take that the path has got longer: what is known of waiting was this instead."""
        self.least_us = self._before_us = self._round.least_us = rtt_us
        self._least_at_us = now_us
        self._gathering = Gathering(self._held_us)
        self._longer.search(0)
        self._full_thirds = self._still_rounds = 0
        self._contested = False

    def _take_order(self, order: int, rtt_us: int) -> None:
        """Take in which order something left: what a later one overtook has waited elsewhere than in a queue."""
        late_us = max(0, rtt_us - self._front_us) if order < self._front else 0
        if order >= self._front:
            self._front, self._front_us = order, rtt_us
        self._spread_samples = min(self._spread_samples + 1, SPREAD_SAMPLES)
        self._spread += (late_us * SCALE - self._spread) // self._spread_samples

    def waited(self, order: int, rtt_us: int) -> None:
        if order < self._front:
            self._take_order(order, rtt_us)

    @property
    def _grown_us(self) -> int:
        """How much longer than the shortest a round trip is where the queue is long."""
        return max(self.least_us >> 1, QUEUE_US_MIN) + self.spread_us

    def _is_grown(self, rtt_us: int) -> bool:
        """Return whether a round trip shows that the queue is long."""
        return rtt_us > self.least_us + self._grown_us

    def _is_long(self, rtt_us: int) -> bool:
        """Return whether a round trip shows more than a short queue."""
        return rtt_us > self.least_us + max(self.least_us >> 3, QUEUE_US_MIN) + self.spread_us

    def _end_round(self, in_flight: int, now_us: int) -> None:
        """Judge the round trip that ends."""
        self._gathering.end_round()
        over, delivered = self._round, self._delivery.packets - self._round.delivered
        lost, grown = self._lost - over.lost, self._is_grown(over.least_us)
        least = LOST_MANY if self.phase == STARTUP else 0
        noticed = lost > least and lost * SCALE > (lost + delivered) * LOSS_NOTICED
        self._calm_rounds += self.phase not in (STARTUP, DRAIN)
        if self._was_down and self._calm_rounds > CALM_ROUNDS and not grown:
            self._measure_loss(lost, delivered)
        self._was_down = self.phase == DOWN
        self._phase_rounds += 1
        shorter = over.least_us < self._before_us - (self._before_us >> 6)
        self._still_rounds = 0 if shorter else self._still_rounds + 1
        growing = self._is_growing()
        lasting = grown and self._is_grown(self._before_us) and self.phase in (STARTUP, UP, CRUISE) and not growing
        still = self.phase == DOWN and self._phase_rounds > 1 and not shorter
        paced = self.rate * self._gain_before // SCALE * (SCALE - self.loss) // SCALE
        kept_up = self._delivery.average(1, BUNCHES, now_us) * 8 >= paced * 7
        self._is_bare = still and kept_up and not grown
        arrived = kept_up and lost * SCALE <= (lost + delivered) * (LOSS_NOTICED + self.loss)
        slowed = self.phase in (DRAIN, DOWN) and grown and arrived
        self._longer.end_round(over.least_us, self._before_us, slowed=slowed)
        self._longer.step_us = self._grown_us + BETWEEN * SCALE * SECOND // max(1, self.rate)
        stuck = still and not self._is_bare and self._is_long(over.least_us)
        noticed = noticed and grown
        if (lasting or stuck) and (noticed or not self._contested):
            own = max(0, lost * SCALE // (lost + delivered) - self.loss) if noticed else 0
            self._calm_rounds = 0 if noticed else self._calm_rounds
            average, still_rounds = self._delivery.average(1, 2 if noticed else BUNCHES, now_us), self._still_rounds
            self._believe(average * (SCALE - own) // SCALE, now_us)
            if noticed or stuck:
                self._gain = min(self._gain, DEEP_GAIN)
            self._still_rounds = still_rounds if stuck else 0
            self._down_rate = self._down_rate if stuck and not noticed else self.rate
        elif self.phase == STARTUP and not over.limited:
            # Without a sample only repairs arrived; and where answers overtake each other that is no queue.
            mixed = not self.cumulative and 2 * self._spread > self.least_us * SCALE
            self._judge_growth(delivered, 3 if over.least_us and (grown or not mixed) else 1, now_us)
        self._before_us, self._gain_before = over.least_us, self._gain
        self._round = Round(self._delivery.packets, self._lost, in_flight, now_us)

    def _measure_loss(self, lost: int, delivered: int) -> None:
        self._missing += lost
        self._tried += lost + delivered
        if self._tried > LOSS_PACKETS:
            self._missing = self._missing * LOSS_PACKETS // self._tried
            self._tried = LOSS_PACKETS

    def _is_growing(self) -> bool:
        """Return whether more in flight has just raised the rate: then it does not wait in a queue."""
        if self.phase == STARTUP:
            # A mark that passes a hole tells at once of all behind it: that it grew says little.
            return not self.cumulative and (self.rate * SCALE >= self._full_rate * GROWTH or not self._full_thirds)
        return self.phase == UP and self.rate * 8 >= self._up_rate * 9

    def _judge_growth(self, delivered: int, thirds: int, now_us: int) -> None:
        """Leave startup when the rate has stopped growing; the round trip counts for so many thirds."""
        if self.rate * SCALE >= self._full_rate * GROWTH:
            self._full_rate, self._full_thirds = self.rate, 0
            self._full_flight = 0 if self.cumulative else delivered
            return
        self._full_thirds += thirds
        if self._full_thirds >= 3 * FULL_ROUNDS:
            self._believe(self._delivery.average(FULL_ROUNDS, 1, now_us), now_us)

    def _believe(self, rate: int, now_us: int) -> None:
        """Take the rate at which a queue was emptied for that of the path, and drain it.

        What was delivered had left a round trip before, perhaps more slowly than the path allows; but if not even that
        made the queue shorter, the path allows no more.
        """
        slowed = SCALE if self.phase == DOWN else min(SCALE, self._gain_before)
        self._begin(DRAIN if self.phase == STARTUP else DOWN)
        self._delivery.believe(rate * SCALE // slowed, now_us)

    # Phases.

    def _begin(self, phase: int) -> None:
        if self.phase not in (DRAIN, DOWN):
            self._queued_rate = self.rate
        self.phase = phase
        self._gain = GAINS[phase]
        self._phase_rounds = self._still_rounds = 0

    def _advance(self, in_flight: int, now_us: int) -> None:
        """Go to the next phase if this one has done its work."""
        phase = self.phase
        if phase == STARTUP:
            lost = self._lost - self._round.lost
            arrived = self._delivery.packets - self._round.delivered
            left = arrived + lost
            enough = self.cumulative or arrived > 2 * LOST_MANY  # what was only overtaken may seem lost
            many = lost > LOST_MANY and enough and lost * 8 > left
            if many and (self._is_grown(self._latest_us) or (lost * 4 > left and self._is_long(self._latest_us))):
                self._begin(DRAIN)
        elif phase == ROUND_TRIP:
            # What the peer never answers seems to be in flight for long; and without a sample nothing is known.
            fits = in_flight <= self.window or self._phase_rounds > STILL_ROUNDS
            if self._phase_rounds > 1 and self._still_rounds and fits:
                self.least_us, self._least_at_us = self._longer.found_us or self.least_us, now_us
                if self._longer.is_found:
                    self._delivery.restore(self._queued_rate)
                self._begin(CRUISE)
        elif now_us - self._least_at_us > LEAST_FOR_US:
            self._longer.search(0)
            self._begin(ROUND_TRIP)
        elif phase in (DRAIN, DOWN):
            self._end_drain(in_flight)
        elif phase == CRUISE:
            if self._phase_rounds >= self._cruise_rounds:
                self._delivery.turn()
                self._up_rate = 0
                self._go_up(in_flight)
        elif self._phase_rounds > 0:
            long = self._is_grown(self._before_us) and self._is_grown(self._round.least_us)
            if long and not self._contested and not self._is_growing():
                self._believe(self._delivery.average(1, BUNCHES, now_us), now_us)
            elif self._delivery.covers(self._up_delivered, BUNCHES):  # long enough for a sample of what it brings
                self._go_up(in_flight)

    def _end_drain(self, in_flight: int) -> None:
        """Go on at the rate when the queue is empty, or not this sender's."""
        if self._longer.is_likely:
            self._longer.search(self._before_us)
            self._contested = False
            self._begin(ROUND_TRIP)
            return
        rtt_us, product = self._round.least_us or self._before_us, self.product
        # A round trip that stays short shows it, too: the peer may never answer some of what seems to be in flight.
        fits = in_flight <= product + self._held or self._phase_rounds > STILL_ROUNDS
        empty = (self._is_bare or not self._is_long(rtt_us)) and self._phase_rounds > 0 and fits
        if empty or self._still_rounds >= STILL_ROUNDS:
            self._contested = not empty
            if self._contested:
                self._delivery.restore(self._down_rate)
            self._begin(CRUISE)
            self._cruise_rounds = CRUISE_ROUNDS_MIN + (self._delivery.packets * 40_503 >> 8) % CRUISE_ROUNDS_SPREAD

    def _go_up(self, in_flight: int) -> None:
        """Begin UP, or go on with it as long as that raises the rate."""
        if self._up_rate and not self._is_growing():
            self._down_rate = self.rate
            self._begin(DOWN)
            return
        self._up_flight, self._up_rate, self._up_delivered = in_flight, self.rate, self._delivery.packets
        self._begin(UP)

    # Losses: only what they say of a round trip counts.

    def missed(self, packets: int) -> None:
        self._lost += packets

    def lost(self, sent_us: int, now_us: int) -> bool:
        if sent_us <= self._cut_us:
            return False
        self._cut_us = now_us
        return True

    def undo(self) -> None:
        return

    def timed_out(self, sent_us: int, now_us: int) -> None:
        self._stalled = self.least_us > 0
