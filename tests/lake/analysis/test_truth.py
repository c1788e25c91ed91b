"""What the tables say of simulated runs is what happened in them, counted by the network and by the machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fairway.core.statistics import Statistics
from tests.lake.analysis.conftest import Truth
from tests.lake.analysis.worlds import World

Row = dict[str, Any]
Told = Callable[[World, str, str], int]
SERVER, CLIENT = "server", "client 1"
HANDSHAKE = """(kind IN ('syn', 'syn_ack', 'connect', 'con_reply', 'fin')
    OR (kind = 'response' AND body_bytes = 0 AND udpc_ack = 1))"""
WAYS = ((CLIENT, SERVER), (SERVER, CLIENT))


@pytest.fixture(scope="module")
def packets_of(truth: Truth) -> dict[tuple[str, str, str], Row]:
    """Packets counted by sender, receiver and point."""
    truth.tables["packets"].createOrReplaceTempView("seen")
    counted = truth.tables["packets"].sparkSession.sql(
        f"""SELECT source, destination, point, count(*) AS datagrams, count_if(session IS NULL) AS outside,
            count_if(retransmission > 0) AS copies, count_if(retransmission > 0 AND {HANDSHAKE}) AS calls_again,
            count_if(duplicate) AS duplicates
            FROM seen GROUP BY ALL"""
    )
    return {(row["source"], row["destination"], row["point"]): row for row in counted.toArrow().to_pylist()}


@pytest.fixture(scope="module")
def transfers_of(truth: Truth) -> dict[tuple[str, str], Row]:
    """Messages counted by sender and point."""
    truth.tables["transfers"].createOrReplaceTempView("messages")
    truth.tables["sessions"].createOrReplaceTempView("conversations")
    counted = truth.tables["transfers"].sparkSession.sql(
        """SELECT IF(from_caller, caller, callee) AS sender, messages.point, count(first_sent) AS sent,
            count_if(first_sent IS NULL) AS unseen, count_if(outcome = 'acknowledged') AS acknowledged
            FROM messages JOIN conversations USING (session) GROUP BY ALL"""
    )
    return {(row["sender"], row["point"]): row for row in counted.toArrow().to_pylist()}


def disagreements(worlds: Iterable[World], told: Told, true: Callable[[Statistics, Statistics], int]) -> list[str]:
    """Compare a number of the tables with one of the machines, for every run and both ways."""
    found = []
    for world in worlds:
        server, client = world.result.nodes
        for sender, receiver in WAYS:
            machines = (client, server) if sender == CLIENT else (server, client)
            table, machine = told(world, sender, receiver), true(*machines)
            if table != machine:
                run_name = f"{world.configuration.protocol} seed {world.result.seed} from {sender}"
                found.append(f"{run_name}: the table says {table}, the machine {machine}")
    return found


def ends(world: World, sender: str) -> tuple[str, str]:
    """Return the addresses of the sender and of the receiver."""
    server, client = world.hosts
    return (client, server) if sender == CLIENT else (server, client)


def count(rows: dict[Any, Row], key: tuple[str, ...], name: str) -> int:
    return int(rows[key][name]) if key in rows else 0


def of_packets(rows: dict[Any, Row], end: int, name: str, without: str | None = None) -> Told:
    """Return what is counted of packets at the sender's end, 0, or at the receiver's, 1."""

    def told(world: World, *ways: str) -> int:
        key = (*ends(world, ways[0]), ways[end])
        return count(rows, key, name) - (count(rows, key, without) if without else 0)

    return told


def of_messages(rows: dict[Any, Row], end: int, name: str) -> Told:
    """Return what is counted of messages."""
    return lambda world, *ways: count(rows, (ends(world, ways[0])[0], ways[end]), name)


def test_every_run_kept_its_promises(truth: Truth) -> None:
    assert [world.result.seed for world in truth.worlds if not world.result.passed] == []


def test_no_datagram_of_an_endpoint_is_outside_a_session(packets_of: dict[Any, Row]) -> None:
    assert sum(row["outside"] for row in packets_of.values()) == 0


def test_what_a_sender_sent_is_seen_at_its_end(truth: Truth, packets_of: dict[Any, Row]) -> None:
    told = of_packets(packets_of, 0, "datagrams")
    assert disagreements(truth.worlds, told, lambda sender, _: sender.datagrams_sent) == []


def test_what_a_receiver_received_is_seen_at_its_end(truth: Truth, packets_of: dict[Any, Row]) -> None:
    told = of_packets(packets_of, 1, "datagrams")
    assert disagreements(truth.worlds, told, lambda _, receiver: receiver.datagrams_received) == []


def test_copies_at_the_senders_end_are_its_retransmissions(truth: Truth, packets_of: dict[Any, Row]) -> None:
    """A repeated handshake is counted by a machine only where a timer repeats it, so it may be in or out."""
    for world in truth.worlds:
        server, client = world.result.nodes
        for machine, sender in ((client, CLIENT), (server, SERVER)):
            key = (*ends(world, sender), sender)
            copies, calls = count(packets_of, key, "copies"), count(packets_of, key, "calls_again")
            assert copies - calls <= machine.retransmissions <= copies, (
                world.configuration.protocol,
                world.result.seed,
            )


def test_copies_at_the_receivers_end_are_its_duplicates(truth: Truth, packets_of: dict[Any, Row]) -> None:
    told = of_packets(packets_of, 1, "copies", without="calls_again")
    assert disagreements(truth.worlds, told, lambda _, receiver: receiver.duplicates) == []


def test_duplicates_are_copies_and_those_of_important_packets_are_all_found(
    truth: Truth, packets_of: dict[Any, Row]
) -> None:
    assert all(row["duplicates"] <= row["copies"] for row in packets_of.values())
    acknowledged_at_once = [world for world in truth.worlds if world.configuration.protocol == "udpc"]
    told = of_packets(packets_of, 1, "duplicates")
    assert disagreements(acknowledged_at_once, told, lambda _, receiver: receiver.duplicates) == []
    assert sum(row["duplicates"] for row in packets_of.values()) > 0


def test_messages_are_those_that_were_sent_and_delivered(truth: Truth, transfers_of: dict[Any, Row]) -> None:
    sent, acknowledged = (of_messages(transfers_of, 0, name) for name in ("sent", "acknowledged"))
    arrived = of_messages(transfers_of, 1, "sent")
    assert disagreements(truth.worlds, sent, lambda sender, _: sender.messages_sent) == []
    assert disagreements(truth.worlds, acknowledged, lambda sender, _: sender.messages_delivered) == []
    assert disagreements(truth.worlds, arrived, lambda _, receiver: receiver.messages_received) == []
    assert sum(row["unseen"] for row in transfers_of.values()) == 0


def test_sessions_seconds_and_packets_add_up(truth: Truth) -> None:
    def total(table: str, text: str) -> Any:
        return truth.tables[table].selectExpr(f"{text} AS total").toArrow()["total"][0].as_py()

    assert total("sessions", "sum(packets_out + packets_in)") == total("packets", "count(session)")
    assert total("timeline", "sum(packets_out + packets_in)") == total("packets", "count(session)")
    assert total("sessions", "sum(bytes_out + bytes_in)") == total("packets", "sum(payload_bytes)")
    assert total("timeline", "sum(retransmissions_out + retransmissions_in)") == total(
        "packets", "count_if(retransmission > 0)"
    )
    assert total("sessions", "sum(transfers_out + transfers_in)") == total("transfers", "count(*)")
    assert total("sessions", "sum(rtt_samples)") > 0


def test_a_calm_link_has_no_loss_and_its_round_trip_to_the_microsecond(truth: Truth) -> None:
    """Seed 0 has no faults, sends both ways, and its link takes 10 ms each way."""
    calm = [world for world in truth.worlds if world.result.seed == 0]
    hosts = [host for world in calm for host in world.hosts]
    rows = truth.tables["sessions"].where(f"caller IN {tuple(hosts)}").toArrow().to_pylist()
    assert len(rows) == 2 * len(calm)
    for row in rows:
        assert (row["loss_out"] or 0, row["loss_in"] or 0, row["duplicates"]) == (0, 0, 0), row
        assert row["rtt_min_us"] == 20_000, row
