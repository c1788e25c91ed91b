"""What strangers, forgers and the revoked achieve: nothing, and each failure has a name."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from resource import getpagesize
from time import process_time

import pytest

from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.dtls import DtlsClient, DtlsGateway, Limits
from fairway.dtls.authority import REVOKED, Authority
from fairway.dtls.cookies import Cookies
from fairway.dtls.identity import IdentityFiles, read_identity
from fairway.dtls.openssl import OpensslClientEngine, OpensslGatewayEngine
from fairway.dtls.records import CLOSED
from tests.dtls.test_associations import A, B, Either, up
from tests.dtls.world import GATEWAY, GATEWAY_NAME, NOW, SECOND_US, Fleet, World

FATAL_ALERT = CLOSED[:-2] + b"\x02\x28"


def test_live_associations_ignore_forged_alerts_and_rewritten_epochs(either: Either) -> None:
    """Noise, truncated and damaged datagrams come by the thousand from `tests/fuzz`."""
    world, random = up(either), Seeded(7)
    sent = [b"%d" % number for number in range(200)]
    for body in sent:
        for _ in range(4):
            datagram = world.carried[random.below(len(world.carried))][2]
            alert = FATAL_ALERT[:5] + random.bits(48).to_bytes(6, "big") + FATAL_ALERT[11:]
            for forged in (alert, datagram[:3] + random.bits(16).to_bytes(2, "big") + datagram[5:]):
                world.gateway.receive(forged, A, world.now_us)
                world.clients[A].receive(forged, GATEWAY, world.now_us)
        world.say(A, body)
        world.run(50_000)
    assert world.of(A, "sensor-1") == [b"first", *sent]
    assert world.answers[A] == [b"echo first", *(b"echo " + body for body in sent)]
    assert world.gateway.counters.associations == 1


def test_a_replay_of_everything_delivers_nothing_twice(either: Either) -> None:
    world = up(either)
    world.chat(A, 300)
    recorded = list(world.carried)
    got, answered = list(world.of(A, "sensor-1")), list(world.answers[A])
    sent_before = sum(len(one) for source, _, one in recorded if source == GATEWAY)
    for source, _, datagram in recorded:
        if source == GATEWAY:
            world.clients[A].receive(datagram, GATEWAY, world.now_us)
        else:
            world.gateway.receive(datagram, A, world.now_us)
            world.gateway.receive(datagram, B, world.now_us)
        world.settle()
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == got
    assert world.answers[A] == answered
    assert len(world.gateway.associations()) == 1
    assert sent_before > 0


def test_spoofed_hellos_leave_no_state_and_get_no_more_bytes_than_they_sent(fleet: Fleet) -> None:
    world = up(fleet)
    client = fleet.client("sensor-2")
    client.send([Transmit(client.inner, b"hello")], 0)
    [spoofed] = client.transmits()
    size, got = len(spoofed.data), Counter[object]()
    state = (len(world.gateway.associations()), world.gateway.counters.half_open)
    held_bytes, began_s = resident_bytes(), process_time()
    for number in range(100_000):
        world.gateway.receive(spoofed.data, ("203.0.113.1", number % 10_000), world.now_us)
        for answer in world.gateway.transmits():
            got[answer.address] += len(answer.data)
    assert len(got) == 10_000
    spent_s, grown_bytes = process_time() - began_s, resident_bytes() - held_bytes
    print(
        f"{10 * spent_s:.1f} us each, {size} bytes in, {got.total() // 100_000} out, {grown_bytes:,} bytes more memory"
    )
    assert grown_bytes < 8 << 20, "the count of each address in this test is less"
    assert max(got.values()) <= 10 * size
    assert (len(world.gateway.associations()), world.gateway.counters.half_open) == state
    assert world.gateway.counters.hellos == 100_001
    world.say(A, b"still up")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"first", b"still up"]


def test_hellos_with_a_cookie_that_is_not_theirs_take_no_handshake_from_devices(fleet: Fleet) -> None:
    """Whoever spoofs addresses has no cookie for them: what it sends must not count as handshakes."""
    world, stranger = World(fleet.gateway()), fleet.client("sensor-2")
    stranger.send([Transmit(stranger.inner, b"hello")], 0)
    world.gateway.receive(stranger.transmits()[0].data, B, world.now_us)
    stranger.receive(world.gateway.transmits()[0].data, GATEWAY, 0)
    [spoofed] = stranger.transmits()
    for number in range(1_000):
        world.gateway.receive(spoofed.data, ("203.0.113.1", number), world.now_us)
        world.run(1_000)
    world.add(fleet.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"hello"]
    assert world.gateway.counters.dropped == {}


def test_hellos_with_a_cookie_that_is_not_theirs_take_no_room_in_the_queue_from_devices(fleet: Fleet) -> None:
    """More than the queue holds at one instant: only whose cookie is valid has to wait, and may take from others."""
    world = World(fleet.gateway())
    world.add(fleet.client("sensor-1"), A)
    world.say(A, b"hello")
    assert world.run(SECOND_US, lambda: len(world.carried) == 3)
    spoofed = world.carried[-1][2]
    for number in range(2_000):
        world.gateway.receive(spoofed, ("203.0.113.1", number), world.now_us)
    world.gateway.receive(spoofed, A, world.now_us)
    assert world.gateway.counters.half_open == 1
    assert world.gateway.counters.dropped == {}


def nothing(_: int) -> None:
    """Do nothing between two messages."""


def fastest_s(world: World, *betweens: Callable[[int], None]) -> list[float]:
    """Return the least processor time of 50 messages of a device and their answers, for each thing done between them.

    They are measured in many short turns, so that some of each are met by no other work of the machine.
    """
    gateway, client = world.gateway, world.clients[A]

    def seconds(between: Callable[[int], None]) -> float:
        began_s = process_time()
        for number in range(50):
            between(number)
            client.send([Transmit(client.inner, b"message")], world.now_us)
            gateway.receive(client.transmits()[0].data, A, world.now_us)
            gateway.send([Transmit(gateway.plaintexts()[0].address, b"answer")], world.now_us)
            gateway.next_deadline_us()
            client.receive(gateway.transmits()[0].data, GATEWAY, world.now_us)
            assert client.plaintexts()[0].data == b"answer"
        return process_time() - began_s

    return [min(times) for times in zip(*([seconds(one) for one in betweens] for _ in range(70)), strict=True)]


def test_a_device_keeps_half_of_its_rate_with_a_spoofed_hello_to_every_second_message(fleet: Fleet) -> None:
    world, stranger = up(fleet), fleet.client("sensor-2")
    stranger.send([Transmit(stranger.inner, b"hello")], 0)
    [spoofed] = stranger.transmits()

    def flood(number: int, every: int) -> None:
        if number % every == 0:
            world.gateway.receive(spoofed.data, ("203.0.113.1", number), world.now_us)
            world.gateway.transmits()

    alone_s, beside_s, most_s = fastest_s(world, nothing, partial(flood, every=2), partial(flood, every=1))
    print(f"{alone_s / beside_s:.0%} of its rate, {alone_s / most_s:.0%} with one to every message")
    assert alone_s >= beside_s / 2


def test_a_device_keeps_half_of_its_rate_beside_as_many_half_open_associations_as_there_may_be(fleet: Fleet) -> None:
    world = up(fleet)
    [alone_s] = fastest_s(world, nothing)
    for number in range(256):
        world.run(5_000)
        stranger, address = fleet.client("sensor-2", seed=number), ("203.0.113.1", number)
        stranger.send([Transmit(stranger.inner, b"hello")], world.now_us)
        world.gateway.receive(stranger.transmits()[0].data, address, world.now_us)
        stranger.receive(world.gateway.transmits()[0].data, GATEWAY, world.now_us)
        world.gateway.receive(stranger.transmits()[0].data, address, world.now_us)
        world.gateway.transmits()
    assert world.gateway.counters.half_open == 256
    [beside_s] = fastest_s(world, nothing)
    print(f"{alone_s / beside_s:.0%} of its rate")
    assert alone_s >= beside_s / 2


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


def test_an_association_takes_no_more_memory_than_the_bounds_are_made_for(fleet: Fleet) -> None:
    gateway = fleet.gateway()
    held_bytes = 0
    for number in range(150):
        gc.collect()  # clients that are done must not add up
        if number == 50:
            held_bytes = resident_bytes()
        world, address = World(gateway, now_us=number * SECOND_US), ("198.51.100.7", number)
        world.add(fleet.client("sensor-1", seed=number), address)
        world.say(address, b"hello")
        assert world.run(SECOND_US, lambda world=world: bool(world.answers))  # type: ignore[misc]
    each_bytes = (resident_bytes() - held_bytes) / 100
    print(f"{gateway.counters.associations} associations, {each_bytes / 1_024:.0f} KiB each")
    assert each_bytes * Limits().up_max < 1_200_000_000


def test_even_the_smallest_hello_gets_no_more_than_it_sent(either: Either) -> None:
    world = up(either)
    hello = next(datagram for source, _, datagram in world.carried if source == A)
    for size in range(len(hello) + 1):
        world.gateway.receive(hello[:size], B, world.now_us)
        assert sum(len(answer.data) for answer in world.gateway.transmits()) <= size


def test_a_stranger_fills_no_memory_with_fragments_of_what_it_never_completes(fleet: Fleet) -> None:
    """With a cookie, and without a certificate. OpenSSL keeps ten messages of a hundred kilobytes each."""
    world = World(fleet.gateway())
    world.add(fleet.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(70_000)
    assert world.gateway.counters.half_open == 1
    sent = 0
    while world.gateway.counters.half_open:
        message, index = divmod(sent, 90)
        # Type, length, number of the message, offset and length of the fragment; then the same as a record.
        fragment = b"\x0b\x01\x8e\x70" + bytes((0, 3 + message)) + (index * 1_100).to_bytes(3, "big") + b"\x00\x04\x4c"
        record = b"\x16\xfe\xfd\0\0" + (100 + sent).to_bytes(6, "big") + (1_112).to_bytes(2, "big")
        world.gateway.receive(record + fragment + bytes(1_100), A, world.now_us + sent)
        sent += 1
        assert sent < 100
    assert world.gateway.counters.failed == {"handshake_bytes": 1}


def test_a_cookie_of_another_address_and_an_old_one_are_not_valid() -> None:
    cookies = Cookies(b"secret")
    cookie = cookies.make(A, 0)
    assert cookies.valid(cookie, A, 59 * SECOND_US)
    assert not cookies.valid(cookie, A, 60 * SECOND_US)
    assert not cookies.valid(cookie, B, 0)
    assert not Cookies(b"other").valid(cookie, A, 0)


def test_a_forged_alert_in_a_handshake_costs_one_attempt(either: Either) -> None:
    world = World(either.gateway())
    client = world.add(either.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(70_000)
    client.receive(FATAL_ALERT, GATEWAY, world.now_us)
    world.gateway.receive(FATAL_ALERT, A, world.now_us)
    assert not client.is_up
    assert world.run(20 * SECOND_US, lambda: A in world.answers)
    assert client.counters.failed.total() >= 1


def test_plain_datagrams_get_no_answer(either: Either) -> None:
    world = up(either)
    random = Seeded(3)
    for size in range(1, 1_500):
        world.gateway.receive(random.bits(8 * size).to_bytes(size, "big"), B, world.now_us)
    assert world.gateway.transmits() == []
    assert world.gateway.counters.dropped["not_dtls"] >= 1_490


@pytest.mark.parametrize("size", [2_049, 9_000])
def test_a_datagram_above_every_budget_is_dropped(size: int, either: Either) -> None:
    world = up(either)
    for address in (A, B):
        world.gateway.receive(b"\x17\xfe\xfd\0\1" + bytes(size - 5), address, world.now_us)
    assert world.gateway.counters.dropped["too_large"] == 2


# Who may not come in.


def refused(world: World, client: DtlsClient) -> tuple[set[str], set[str]]:
    """Return why gateway and client say that a handshake failed; nothing may have been delivered."""
    world.add(client, A)
    world.say(A, b"let me in")
    world.run(5 * SECOND_US)
    assert world.received == {}
    assert not client.is_up
    assert world.gateway.associations() == []
    return set(world.gateway.counters.failed), set(client.counters.failed)


def client_of(fleet: Fleet, path: Path, *, days_ago: int = 0) -> DtlsClient:
    identity = read_identity(IdentityFiles(identity=str(path)), "device", NOW - timedelta(days=days_ago))
    return DtlsClient(OpensslClientEngine(identity, GATEWAY_NAME), GATEWAY, Seeded(1))


def test_the_device_of_a_stranger_is_refused_and_refuses(fleet: Fleet, tmp_path: Path) -> None:
    stranger = Fleet(tmp_path)
    assert refused(World(fleet.gateway()), stranger.client("sensor-1"))[1] == {"unknown_ca"}
    trusting = stranger.file("sensor-1")
    # Now it trusts our gateway, and only the gateway is in its way.
    both = tmp_path / "both.pem"
    both.write_text(trusting.read_text() + (fleet.folder / "ca" / "ca.pem").read_text())
    both.chmod(0o600)
    assert refused(World(fleet.gateway()), client_of(fleet, both)) == ({"unknown_ca"}, {"alert_unknown_ca"})


def test_an_expired_device_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "old.pem"
    authority = Authority(tmp_path / "ca")
    authority.create("test-ca", 60, NOW - timedelta(days=40))
    authority.issue("sensor-1", "device", 2, path, NOW - timedelta(days=40))
    authority.issue(GATEWAY_NAME, "gateway", 60, tmp_path / "gateway.pem", NOW - timedelta(days=40))
    identity = read_identity(IdentityFiles(identity=str(tmp_path / "gateway.pem")), "gateway", NOW)
    gateway = DtlsGateway(OpensslGatewayEngine(identity, Cookies(b"secret")))
    assert refused(World(gateway), client_of(fleet, path, days_ago=39)) == (
        {"expired"},
        {"alert_certificate_expired"},
    )


def test_a_device_that_poses_as_the_gateway_is_refused(fleet: Fleet) -> None:
    posing = OpensslGatewayEngine(fleet.identity("sensor-1"), Cookies(b"secret"))
    world = World(DtlsGateway(posing))
    _, reasons = refused(world, fleet.client("sensor-2", expects="sensor-1"))
    assert reasons == {"wrong_role"}


def test_a_revoked_device_is_sent_away_at_once_and_not_let_in_again(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    world = World(fleet.gateway())
    for address, name in ((A, "sensor-1"), (B, "sensor-2")):
        world.add(fleet.client(name), address)
        world.say(address, b"hello")
    world.run(SECOND_US)
    assert len(world.gateway.associations()) == 2
    fleet.authority.revoke("sensor-1")
    listed = tmp_path / "ca" / REVOKED
    world.gateway.replace_engine(fleet.gateway_engine(revoked=listed), world.now_us)
    world.settle()
    for number in range(100):
        world.say(A, b"refused %d" % number)
        world.say(B, b"%d" % number)
        world.run(50_000)
    assert world.of(A, "sensor-1") == [b"hello"]
    assert world.of(B, "sensor-2") == [b"hello", *(b"%d" % number for number in range(100))]
    assert world.gateway.counters.dropped["association_revoked"] == 1
    assert set(world.gateway.counters.failed) == {"revoked"}
    assert world.clients[B].counters.renewals == 0
    # Its name can be issued again, with another serial number.
    fleet.authority.issue("sensor-1", "device", 5, tmp_path / "again.pem", NOW)
    world.add(client_of(fleet, tmp_path / "again.pem"), A)
    world.say(A, b"replaced")
    world.run(SECOND_US)
    assert world.of(A, "sensor-1") == [b"hello", b"replaced"]


@pytest.mark.parametrize("after_us", [30_000, 50_000, 70_000, 90_000, 110_000])
def test_a_device_whose_handshake_meets_a_reload_is_in_within_two_seconds(after_us: int, fleet: Fleet) -> None:
    world = World(fleet.gateway())
    world.add(fleet.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(after_us)
    world.gateway.replace_engine(fleet.gateway_engine(), world.now_us)
    assert world.run(2 * SECOND_US, lambda: A in world.answers)


def test_a_device_that_is_revoked_in_the_middle_of_its_handshake_is_not_let_in(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    world = World(fleet.gateway())
    client = world.add(fleet.client("sensor-1"), A)
    world.say(A, b"hello")
    world.run(70_000)
    assert world.gateway.counters.half_open == 1
    fleet.authority.revoke("sensor-1")
    world.gateway.replace_engine(fleet.gateway_engine(revoked=tmp_path / "ca" / REVOKED), world.now_us)
    world.run(20 * SECOND_US)
    assert not client.is_up
    assert world.received == {}
    assert world.gateway.counters.failed.keys() == {"reloaded", "revoked"}
