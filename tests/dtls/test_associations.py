"""A client and a gateway over bad links, restarts, moves, renewals: in virtual time, with OpenSSL and with the fake."""

from __future__ import annotations

import gc
from statistics import median
from time import process_time, sleep
from weakref import ref

import pytest
from OpenSSL import SSL

from fairway.core.addresses import device_of, with_device
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.dtls import OVERHEAD_BYTES, PLAINTEXT_BYTES_MAX, Limits
from fairway.dtls.openssl import OpensslClientEngine
from fairway.dtls.records import ALERT, CLOSED, DATA, hello, split
from tests.dtls.fake import FakeClientEngine
from tests.dtls.world import GATEWAY, GATEWAY_NAME, SECOND_US, FakeFleet, Faults, Fleet, World, segments

A, B = ("198.51.100.7", 4000), ("198.51.100.7", 4001)
Either = Fleet | FakeFleet


def up(fleet: Either, *, seed: int = 1, limits: Limits | None = None, client_limits: Limits | None = None) -> World:
    """Return a world in which a sensor at A is up and has been answered."""
    world = World(fleet.gateway(limits), seed)
    world.add(fleet.client("sensor-1", seed=seed, limits=client_limits), A)
    world.say(A, b"first")
    assert world.run(10 * SECOND_US, lambda: A in world.answers)
    return world


def test_a_message_arrives_with_the_name_of_its_device_and_is_answered(either: Either) -> None:
    world = up(either)
    assert world.of(A, "sensor-1") == [b"first"]
    assert world.answers[A] == [b"echo first"]
    [association] = world.gateway.associations()
    assert association.peer.name == "sensor-1"
    assert world.clients[A].peer is not None
    assert world.gateway.counters.handshakes == world.clients[A].counters.handshakes == 1
    assert all(len(datagram) <= 1_200 for _, _, datagram in world.carried)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(loss=200_000),
        Faults(loss=300_000),
        Faults(duplicate=300_000),
        Faults(reorder=300_000),
        Faults(loss=200_000, duplicate=200_000, reorder=200_000),
        Faults(flip=100_000),
    ],
    ids=str,
)
def test_a_hundred_of_a_hundred_handshakes_complete_over_a_bad_link(faults: Faults, either: Either) -> None:
    took_s = []
    for seed in range(100):
        world = World(either.gateway(), seed, faults)
        client = world.add(either.client("sensor-1", seed=seed), A)
        world.say(A, b"hello")
        began_us = world.now_us
        assert world.run(120 * SECOND_US, lambda client=client: client.is_up), f"seed {seed}"  # type: ignore[misc]
        took_s.append((world.now_us - began_us) / SECOND_US)
    print(f"{faults}: median {median(took_s):.2f} s, the slowest {max(took_s):.2f} s")


def test_datagrams_wait_for_the_handshake_and_no_more_than_the_bound(either: Either) -> None:
    world = World(either.gateway())
    client = world.add(either.client("sensor-1"), A)
    world.say(A, *(b"%d" % number for number in range(20)), b"3")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"%d" % number for number in range(16)]
    assert client.counters.dropped["queue_full"] == 5


def test_a_run_of_equal_datagrams_is_a_run_of_equal_records_both_ways(either: Either) -> None:
    world = up(either)
    client = world.clients[A]
    bodies = [bytes([number]) * 1_000 for number in range(40)]
    client.send([Transmit(client.inner, b"".join([*bodies, b"short"]), 1_000)], world.now_us)
    [sealed] = client.transmits()
    assert sealed.segment_bytes == 1_000 + OVERHEAD_BYTES
    assert len(sealed.data) == 40 * (1_000 + OVERHEAD_BYTES) + 5 + OVERHEAD_BYTES
    world.gateway.receive(sealed.data, A, world.now_us, sealed.segment_bytes)
    [plaintext] = world.gateway.plaintexts()
    assert segments(plaintext.data, plaintext.segment_bytes) == [*bodies, b"short"]
    assert (plaintext.segment_bytes, plaintext.device) == (1_000, "sensor-1")


@pytest.mark.parametrize("byte", [*range(13), 20, 60, -1])
def test_a_damaged_record_costs_its_super_buffer_only_itself(byte: int, either: Either) -> None:
    world = up(either)
    client = world.clients[A]
    bodies = [bytes([number]) * 100 for number in range(10)]
    client.send([Transmit(client.inner, b"".join(bodies), 100)], world.now_us)
    [sealed] = client.transmits()
    records = segments(sealed.data, sealed.segment_bytes)
    damaged = bytearray(records[4])
    damaged[byte] ^= 1
    records[4] = bytes(damaged)
    world.gateway.receive(b"".join(records), A, world.now_us, sealed.segment_bytes)
    found = [body for one in world.gateway.plaintexts() for body in segments(one.data, one.segment_bytes)]
    assert found == bodies[:4] + bodies[5:]
    # A record that is no data any more may belong to a handshake, and is OpenSSL's to ignore.
    assert world.gateway.counters.dropped.total() == (1 if byte else 0)


def test_what_is_empty_or_too_large_for_a_record_is_dropped_and_counted(either: Either) -> None:
    world = up(either)
    client, device = world.clients[A], with_device(A, "sensor-1")
    for size in (0, PLAINTEXT_BYTES_MAX + 1):
        client.send([Transmit(client.inner, bytes(size))], world.now_us)
        world.gateway.send([Transmit(device, bytes(size))], world.now_us)
    assert (client.transmits(), world.gateway.transmits()) == ([], [])
    assert client.counters.dropped == world.gateway.counters.dropped == {"plaintext_size": 2}
    client.send([Transmit(client.inner, bytes(PLAINTEXT_BYTES_MAX))], world.now_us)
    assert len(client.transmits()[0].data) == 1_200


def test_an_association_is_renewed_by_age_and_by_records_and_nothing_is_lost(either: Either) -> None:
    limits = Limits(renew_us=30 * SECOND_US, renew_records=50)
    world = up(either, client_limits=limits)
    sent = world.chat(A, 200, 100_000)
    world.run(60 * SECOND_US)
    assert world.of(A, "sensor-1") == [b"first", *sent]
    assert world.gateway.counters.renewals >= 5
    assert world.clients[A].counters.renewals == world.gateway.counters.renewals
    assert len(world.gateway.associations()) == 1


@pytest.mark.parametrize("seed", range(1, 6))
def test_an_idle_association_is_renewed_at_its_age_at_the_latest(seed: int, either: Either) -> None:
    world = up(either, seed=seed, client_limits=Limits(renew_us=1_000 * SECOND_US))
    assert not world.run(740 * SECOND_US, lambda: world.gateway.counters.renewals > 0)
    assert world.run(261 * SECOND_US, lambda: world.gateway.counters.renewals > 0)


@pytest.mark.parametrize(("hints", "within_us"), [(100, SECOND_US), (0, 4 * SECOND_US)])
def test_a_restarted_gateway_is_found_again(hints: int, within_us: int, either: Either) -> None:
    world = up(either)
    world.gateway = either.gateway(Limits(hints_per_second=hints), secret=b"another")
    world.chat(A, within_us // 50_000)
    assert len(world.of(A, "sensor-1")) > 1
    assert (world.gateway.counters.hints > 0) == (hints > 0)
    assert world.clients[A].counters.renewals == 1


@pytest.mark.parametrize("hints", [0, 100])
def test_what_told_a_client_of_a_restart_is_sent_again_on_the_new_association(hints: int, either: Either) -> None:
    """A machine may be seconds from its next retransmission, and the gateway be gone again by then."""
    world = up(either)
    world.gateway = either.gateway(Limits(hints_per_second=hints), secret=b"another")
    world.say(A, b"second")
    assert world.run(4 * SECOND_US, lambda: world.answers[A] == [b"echo first", b"echo second"])
    assert world.run(30 * SECOND_US) is False
    assert world.of(A, "sensor-1") == [b"first", b"second"]


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_device_gets_through_to_a_gateway_that_is_killed_every_few_seconds(seed: int) -> None:
    """A life may be shorter than the pause to the next retransmission, so that what finds the gateway must arrive."""
    fleet, random, waits_us = FakeFleet(), Seeded(seed), [0]
    world = World(fleet.gateway(), seed, delay_us=500)
    world.add(fleet.client("sensor-1", seed=seed), A)
    due_us, pause_us, life_us = world.now_us, SECOND_US // 5, world.now_us
    for life in range(160):
        away = life % 2
        world.faults = Faults(loss=1_000_000 if away else 30_000)
        if not away:
            world.gateway = fleet.gateway(secret=b"%8d" % life)
        life_us += SECOND_US + random.below(5 * SECOND_US) if away else SECOND_US // 2 + random.below(4 * SECOND_US)
        while world.now_us < life_us:
            if world.now_us >= due_us:
                world.say(A, b"%d" % len(waits_us))
                due_us, pause_us = world.now_us + pause_us, min(2 * pause_us, 15 * SECOND_US)
                waits_us[-1] += due_us - world.now_us
            if world.run(
                min(due_us, life_us) - world.now_us, lambda: b"echo %d" % len(waits_us) in world.answers.get(A, ())
            ):
                due_us, pause_us = world.now_us + SECOND_US // 5, SECOND_US // 5
                waits_us.append(0)
    took_s, longest_s = world.now_us // SECOND_US, max(waits_us) / SECOND_US
    print(f"{len(waits_us) - 1} messages in {took_s} s, the longest wait {longest_s:.0f} s")
    assert max(waits_us) < 60 * SECOND_US


def test_a_client_at_another_address_shakes_hands_anew_and_is_to_the_machine_where_it_was(either: Either) -> None:
    world = up(either)
    world.clients[B] = world.clients.pop(A)
    world.chat(B, 80)
    assert len(world.of(A, "sensor-1")) > 10
    assert len(world.answers[B]) > 10
    assert world.of(B, "sensor-1") == []
    assert [one.outer for one in world.gateway.associations()] == [B]
    assert world.gateway.counters.moved == 1
    # Another client of the device gets the old address, and the one that moved begins anew.
    world.add(either.client("sensor-1", seed=2), A)
    world.say(A, b"I am new here")
    world.run(5 * SECOND_US)
    world.say(B, b"I am elsewhere")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1")[-1] == b"I am new here"
    assert world.of(B, "sensor-1") == [b"I am elsewhere"]
    assert [one.outer for one in world.gateway.associations()] == [A, B]


def test_two_clients_of_one_device_are_two_peers(either: Either) -> None:
    world = up(either)
    world.add(either.client("sensor-1", seed=2), B)
    for number in range(100):
        world.say(B if number % 2 else A, b"%d" % number)
        world.run(50_000)
    assert world.of(A, "sensor-1") == [b"first", *(b"%d" % number for number in range(0, 100, 2))]
    assert world.of(B, "sensor-1") == [b"%d" % number for number in range(1, 100, 2)]
    assert world.gateway.counters.moved == 0


def test_an_idle_association_is_closed(either: Either) -> None:
    world = up(either)
    world.clients.clear()
    world.run(3_700 * SECOND_US)
    assert world.gateway.associations() == []
    assert world.gateway.counters.dropped["association_idle"] == 1


def test_a_gateway_that_stops_says_so_and_devices_come_back(either: Either) -> None:
    world = up(either)
    world.gateway.close()
    world.settle()
    world.run(30_000)
    assert not world.clients[A].is_up
    world.gateway = either.gateway(secret=b"another")
    assert world.run(5 * SECOND_US, lambda: world.clients[A].is_up)


def test_a_client_that_leaves_is_forgotten_at_once(either: Either) -> None:
    world = up(either)
    world.clients[A].close()
    world.run(SECOND_US)
    assert world.gateway.associations() == []
    assert world.gateway.counters.associations == 0
    assert world.clients[A].next_deadline_us() is None


def test_another_device_behind_the_same_address_is_another_peer(either: Either) -> None:
    world = up(either)
    world.add(either.client("sensor-2", seed=2), A)
    world.say(A, b"I am new")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"first"]
    assert world.of(A, "sensor-2") == [b"I am new"]
    assert [one.peer.name for one in world.gateway.associations()] == ["sensor-2"]
    world.gateway.send([Transmit(with_device(A, "sensor-1"), b"secret")], world.now_us)
    assert world.gateway.transmits() == []
    assert world.gateway.counters.dropped["no_association"] == 1


def test_a_client_that_begins_anew_from_the_same_address_replaces_its_half_open_association(either: Either) -> None:
    world = World(either.gateway())
    world.add(either.client("sensor-1", seed=1), A)
    world.say(A, b"lost")
    world.run(70_000)
    assert world.gateway.counters.half_open == 1
    world.add(either.client("sensor-1", seed=2), A)
    world.say(A, b"hello")
    assert world.run(10 * SECOND_US, lambda: A in world.answers)
    assert world.gateway.counters.failed["begun_anew"] >= 1


def test_a_client_that_begins_anew_from_the_same_address_leaves_nothing_of_before(either: Either) -> None:
    """Each begins under a name of its own, by which the gateway would know it at another address."""
    world = World(either.gateway())
    before = []
    for seed in range(5):
        world.add(either.client("sensor-1", seed=seed), A)
        world.say(A, b"%d" % seed)
        assert world.run(10 * SECOND_US, lambda: world.clients[A].is_up)
        [up] = world.gateway.associations()
        before.append(ref(up.association))
        del up
    assert world.gateway.counters.renewals == 4
    world.gateway.sweep(world.now_us + SECOND_US * 6)
    gc.collect()
    assert [one() is None for one in before] == [True] * 4 + [False]


def test_a_half_open_association_is_dropped_at_its_limit(either: Either) -> None:
    world = World(either.gateway())
    world.add(either.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(70_000)
    world.clients.clear()
    world.run(14 * SECOND_US)
    assert world.gateway.counters.half_open == 1
    world.run(2 * SECOND_US)
    assert world.gateway.counters.half_open == 0
    assert world.gateway.counters.failed == {"handshake_limit": 1}
    assert world.gateway.next_deadline_us() is None


@pytest.mark.parametrize(
    ("limits", "reason", "let_in"),
    [
        (Limits(up_max=3), "associations_full", 3),
        (Limits(half_open_max=3), "half_open_full", 3),
        (Limits(handshakes_per_second=1, handshakes_burst=3), "handshake_rate", 3),
        (Limits(per_turn_max=1, backlog_max=2), "backlog_full", 3),
    ],
)
def test_a_gateway_lets_in_as_many_as_its_bounds_allow(
    limits: Limits, reason: str, let_in: int, either: Either
) -> None:
    world = World(either.gateway(limits))
    for number in range(5):
        world.add(either.client(f"sensor-{number}", seed=number), ("198.51.100.8", number))
        world.say(("198.51.100.8", number), b"hello")
    world.run(150_000)
    assert len(world.gateway.associations()) == let_in
    assert world.gateway.counters.dropped[reason] == 5 - let_in


@pytest.mark.parametrize("devices", [150, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_fleet_is_back_a_few_seconds_after_a_restart(devices: int, either: Either) -> None:
    world = World(either.gateway())
    for number in range(devices):
        world.add(either.client("sensor-1", seed=number), ("198.51.100.10", number))
        world.say(("198.51.100.10", number), b"before")
    assert world.run(30 * SECOND_US, lambda: len(world.answers) == devices)
    assert devices > 150 or world.gateway.counters.dropped == {}, "a crowd is served turn by turn"
    world.gateway = either.gateway(secret=b"another")
    world.received.clear()
    began_us, began_s = world.now_us, process_time()
    while len(world.received) < devices and world.now_us < began_us + 10 * SECOND_US:
        for address in world.clients:
            world.say(address, b"after")
        world.run(SECOND_US // 2)
    took_s = (world.now_us - began_us) / SECOND_US
    print(f"{devices} back after {took_s:.1f} s, {process_time() - began_s:.1f} s of a core")
    assert len(world.received) == world.gateway.counters.associations == devices
    assert world.gateway.counters.hints >= 100


def test_a_client_without_a_gateway_tries_later_each_time(either: Either) -> None:
    world = World(either.gateway(), faults=Faults(loss=1_000_000))
    client = world.add(either.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(300 * SECOND_US)
    assert client.counters.failed["no_answer"] in range(5, 9)
    assert client.counters.resent_flights == 12 * (client.counters.failed["no_answer"] + 1)


def test_silence_after_a_renewal_doubles_the_time_to_the_next(either: Either) -> None:
    world = up(either)
    world.echo = False
    world.chat(A, 600, 100_000)
    assert world.clients[A].counters.renewals in range(3, 6)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_client_that_has_something_to_send_finds_a_gateway_that_was_away_within_two_seconds(
    killed: bool, either: Either
) -> None:
    world = up(either)
    if not killed:
        world.gateway.close()
        world.settle()
    world.faults = Faults(loss=1_000_000)
    world.chat(A, 200, SECOND_US // 2)
    assert killed or not world.clients[A].is_up
    world.faults = Faults()
    world.gateway = either.gateway(Limits(hints_per_second=0), secret=b"another")
    before = world.clients[A].counters.handshakes
    world.chat(A, 4, SECOND_US // 2)
    assert world.clients[A].is_up
    assert world.clients[A].counters.handshakes > before


@pytest.mark.parametrize("after_us", [0, 30_000, 50_000, 70_000, 90_000, 110_000])
def test_a_gateway_killed_at_any_step_of_a_handshake_is_found_within_two_seconds(after_us: int, either: Either) -> None:
    world = World(either.gateway())
    world.add(either.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(after_us)
    world.gateway = either.gateway(secret=b"another")
    assert world.run(2 * SECOND_US, lambda: A in world.answers)


def test_a_hello_that_openssl_repeats_late_does_not_leave_again(fleet: Fleet) -> None:
    """Its clock is the real one: after a second it writes the hello without a cookie again, before the one with it.

    A gateway would answer it with the record number that its ServerHello has next, which is then taken for a replay.
    """
    gateway, client = fleet.gateway(), fleet.client("sensor-1")
    client.send([Transmit(client.inner, b"hello")], SECOND_US)
    gateway.receive(client.transmits()[0].data, A, SECOND_US)
    sleep(1.1)
    client.receive(gateway.transmits()[0].data, GATEWAY, 2 * SECOND_US)
    [again] = client.transmits()
    assert len(split(bytes(again.data))) == 1
    assert hello(bytes(again.data)).cookie  # type: ignore[union-attr]


class Device:
    """A device whose library has a mind of its own about what it sends when, at a gateway."""

    def __init__(self, fleet: Fleet) -> None:
        self.gateway = fleet.gateway()
        self.end = OpensslClientEngine(fleet.identity("sensor-1"), GATEWAY_NAME).call(b"")
        self.end.advance()

    def carry(self, datagrams: list[bytes]) -> list[bytes]:
        """Bring datagrams to the gateway and return its answers."""
        for datagram in datagrams:
            self.gateway.receive(datagram, A, SECOND_US)
        return [bytes(one.data) for one in self.gateway.transmits()]

    def shake(self, flights: int = 3) -> list[bytes]:
        """Go on with the handshake for so many flights; return the answers to the last."""
        answers: list[bytes] = []
        for _ in range(flights):
            for answer in answers:
                self.end.advance(answer)
            answers = self.carry(self.end.flight())
        return answers

    def answered(self) -> list[bytes]:
        """Return what the device reads of the gateway's answer to a message."""
        self.gateway.send([Transmit(with_device(A, "sensor-1"), b"answer")], SECOND_US)
        return [body for one in self.gateway.transmits() for body in self.end.open(bytes(one.data), len(one.data))]


def test_a_flight_that_a_device_repeats_and_that_comes_after_its_data_spoils_no_answer(fleet: Fleet) -> None:
    """Its library repeats by itself, with new record numbers, so that OpenSSL answers with its last flight again."""
    device = Device(fleet)
    final = device.shake()
    sleep(1.1)
    device.end.ring()
    late = device.end.flight()
    for answer in final:
        device.end.advance(answer)
    assert device.end.established
    device.carry([device.end.seal(b"data", None)[0]])
    assert device.answered() == [b"answer"]
    assert device.carry(late)
    assert device.answered() == device.answered() == [b"answer"]


def test_a_device_that_wants_to_renegotiate_is_told_no_and_heard_all_the_same(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.dtls.openssl.OPTIONS", SSL.OP_NO_QUERY_MTU)
    device = Device(fleet)
    for answer in device.shake():
        device.end.advance(answer)
    data = [device.end.seal(b"%d" % number, None)[0] for number in range(2)]
    device.carry(data[:1])
    device.end._connection.renegotiate()
    device.end.advance()
    [alert] = device.carry(device.end.flight())
    assert alert[0] == ALERT
    device.carry(data[1:])
    assert [bytes(one.data) for one in device.gateway.plaintexts()] == [b"0", b"1"]
    device.gateway.send([Transmit(with_device(A, "sensor-1"), b"answer")], SECOND_US)
    [sealed] = device.gateway.transmits()
    assert (sealed.data[0], len(sealed.data)) == (DATA, OVERHEAD_BYTES + 6)


def test_data_that_comes_with_the_end_of_a_handshake_is_delivered_at_once() -> None:
    """A library with false start (RFC 7918) sends it before it has the gateway's last flight."""
    gateway, end = FakeFleet().gateway(), FakeClientEngine("sensor-1", GATEWAY_NAME, Seeded(1)).call(b"")
    end.advance()
    for _ in range(2):
        gateway.receive(end.flight()[0], A, SECOND_US)
        end.advance(bytes(gateway.transmits()[0].data))
    [finished] = end.flight()
    gateway.receive(finished + end.seal(b"early", None)[0], A, SECOND_US)
    assert [one.data for one in gateway.plaintexts()] == [b"early"]


def test_a_renewal_whose_last_flight_is_lost_is_done_at_the_next_repeat_though_data_flows(either: Either) -> None:
    """What still comes by the keys from before says nothing about the new ones."""
    world = up(either, client_limits=Limits(renew_records=10))
    while not world.gateway.counters.renewals:
        world.say(A, b"data")
        world.run(10_000)
    assert not world.clients[A].counters.renewals
    world._flying = [one for one in world._flying if one[2] != GATEWAY or one[4][0] == DATA]
    world.chat(A, 40, 10_000)
    assert world.clients[A].counters.renewals >= 1


@pytest.mark.parametrize("datagram_bytes", [256, 400])
def test_a_hello_in_fragments_opens_an_association_and_draws_no_close_notify(datagram_bytes: int, fleet: Fleet) -> None:
    """As devices with small datagrams send it. Some libraries give up a handshake when they get one."""
    gateway = fleet.gateway()
    device = OpensslClientEngine(fleet.identity("sensor-1"), GATEWAY_NAME).call(b"x" * 230)
    device._connection.set_ciphertext_mtu(datagram_bytes)
    device.advance()
    while not device.established:
        for record in (record for datagram in device.flight() for record in split(datagram)):
            gateway.receive(record, A, SECOND_US)
        answers = [bytes(one.data) for one in gateway.transmits()]
        assert answers
        assert CLOSED not in answers
        for answer in answers:
            device.advance(answer)
    assert [one.peer.name for one in gateway.associations()] == ["sensor-1"]


def test_slow_answers_are_not_taken_for_silence(either: Either) -> None:
    world = World(either.gateway(), delay_us=2 * SECOND_US)
    client = world.add(either.client("sensor-1"), A)
    world.say(A, b"first")
    assert world.run(60 * SECOND_US, lambda: A in world.answers)
    before = client.counters.handshakes
    world.chat(A, 20, 5 * SECOND_US)
    assert client.counters.handshakes <= before + 1


def test_an_unprotected_close_notify_makes_a_client_shake_hands_at_most_every_five_seconds(either: Either) -> None:
    world = up(either)
    for _ in range(100):
        world.clients[A].receive(CLOSED, GATEWAY, world.now_us)
        world.run(90_000)
    assert world.clients[A].counters.hints == 2
    assert world.clients[A].is_up
    world.say(A, b"second")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"first", b"second"]


def test_addresses_with_a_device_are_told_from_those_of_sockets() -> None:
    for plain in (("192.0.2.1", 1), ("2001:db8::1", 1, 0, 3)):
        assert device_of(plain) is None
        assert device_of(with_device(plain, "sensor-1")) == "sensor-1"


def test_a_run_with_the_fake_is_a_function_of_its_seeds() -> None:
    def carried(seed: int) -> list[tuple[object, ...]]:
        world = World(FakeFleet().gateway(), seed, Faults(loss=200_000, reorder=200_000))
        world.add(FakeFleet().client("sensor-1", seed=seed), A)
        world.chat(A, 50, 100_000)
        return list(world.carried)

    assert carried(1) == carried(1) != carried(2)


def test_the_wrong_gateway_is_not_believed(either: Either) -> None:
    world = World(either.gateway())
    client = world.add(either.client("sensor-1", expects="other.test"), A)
    world.say(A, b"secret")
    world.run(20 * SECOND_US)
    assert not client.is_up
    assert client.counters.failed.keys() == {"wrong_name"}
    assert set(client.failures()) == {"wrong_name"}
    assert world.received == {}
