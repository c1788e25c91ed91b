"""What an operator sees of a gateway: its lines, its exit codes, its errors, its metrics."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairway import net
from fairway.cli import run
from fairway.core import layout
from fairway.core.machine import Machine, Options
from fairway.core.random_source import RandomSource
from fairway.gateway.service import Service
from fairway.gateway.settings import Settings, build
from fairway.protocols import make_machine, make_options

from .world import (
    Crowd,
    Ledger,
    Sender,
    any_ports,
    check_promise,
    fetch,
    gateway,
    journalled,
    landed,
    metrics_url,
    one_of_each,
    until,
)

UDPC = ["udpc://127.0.0.1:0"]


def refused(*arguments: str) -> str:
    """Run a gateway that must not start; return the one line that it says, behind the exit code."""
    command = [sys.executable, "-m", "fairway", "gateway", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = done.stderr.splitlines()
    assert len(said) == 1, done.stderr
    return f"{done.returncode} {said[0]}"


async def test_every_kind_of_message_lands_with_what_is_known_of_it(lake: Path) -> None:
    large = bytes(range(256)) * 5_000
    began_s = time.time()
    async with gateway(lake, any_ports()) as running:
        async with net.connect(running.url("udpc")) as udpc:
            await udpc.send(b"important")
            assert (await udpc.request(b"asked")).body == b""
            await udpc.send(b"plain", reliable=False)
            session = udpc.session
            await until(lambda: len(journalled(lake)) == 3)
        async with net.connect(running.url("mrp")) as mrp:
            await mrp.send(b"ordered")
        async with net.connect(running.url("rup")) as rup:
            await rup.send(b"")
            await rup.send(large)
        async with net.connect(running.url("pydevts")) as pydevts:
            await pydevts.send(b"datagram")
        assert await running.stop() == 0
    rows = landed(lake)
    shown = [(row["protocol"], row["kind"], row["reliable"], row["body"]) for row in rows]
    assert shown == [
        ("udpc", "message", True, b"important"),
        ("udpc", "request", True, b"asked"),
        ("udpc", "plain", False, b"plain"),
        ("mrp", "message", True, b"ordered"),
        ("rup", "message", True, b""),
        ("rup", "message", True, large),
        ("pydevts", "message", True, b"datagram"),
    ]
    assert [row["session"] for row in rows[:3]] == [session] * 3
    assert {row["gateway"] for row in rows} == {"gateway"}
    assert [int(row["id"]) - int(rows[0]["id"]) for row in rows[:3]] == [0, 1, 2]
    assert all(row["peer"] == "127.0.0.1" and row["peer_port"] > 0 for row in rows)
    assert all(row["port"] == urlsplit(running.url(row["protocol"])).port for row in rows)
    assert all(began_s - 1 < row["received"].timestamp() < time.time() + 1 for row in rows)
    assert not list((lake / "gateways" / "gateway" / "spool").iterdir())


async def test_a_stop_seals_all_and_the_next_start_goes_on_with_the_same_sessions(lake: Path) -> None:
    async with gateway(lake, any_ports()) as first:
        crowd = one_of_each(first)
        await crowd.begin(200)
        assert await first.stop() == 0
    assert not journalled(lake)
    async with gateway(lake, first.urls) as second:
        await crowd.more()
        await crowd.end(second, lake)


async def test_a_second_signal_ends_a_gateway_that_cannot_drain_and_loses_nothing(lake: Path) -> None:
    full = lake.parent / "full"
    async with gateway(lake, UDPC, environment={"FAIRWAY_DISK_FULL_WHILE": str(full)}) as running:
        async with net.connect(running.urls[0], close_timeout_s=0.1) as connection:
            await connection.send(b"kept")
            full.touch()
            waiting = connection.send_nowait(b"never written")
            await until(lambda: any("not acknowledging" in line for line in running.said))
            running.signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            assert running.process.returncode is None
            running.signal(signal.SIGTERM)
            assert await running.ended() == 143
            assert not waiting.done()
        waiting.exception()
    assert journalled(lake) == [b"kept"]


async def test_a_full_disk_holds_back_acknowledgements_until_there_is_room(lake: Path) -> None:
    full = lake.parent / "full"
    options = ("--metrics", "127.0.0.1:0", "--seal-after", "100ms")
    environment = {"FAIRWAY_DISK_FULL_WHILE": str(full)}
    async with gateway(lake, any_ports(), *options, environment=environment) as running:
        page = await metrics_url(running)
        health = page.replace("/metrics", "/healthz")
        crowd = one_of_each(running)
        await crowd.begin(100)
        assert (await fetch(health))[0] == 200
        full.touch()
        await until(lambda: any("not acknowledging" in line for line in running.said))
        status, reason = await fetch(health)
        assert status == 503
        assert "full" in reason
        assert "fairway_gateway_stalled{" in (await fetch(page))[1]
        held_at = len(crowd.ledger.acknowledged)
        await asyncio.sleep(0.3)
        assert len(crowd.ledger.acknowledged) <= held_at + 40, "acknowledged though nothing was written"
        full.unlink()
        await crowd.more()
        await until(lambda: any("acknowledging again" in line for line in running.said))
        await crowd.end(running, lake)


async def test_a_journal_at_its_bound_waits_for_the_sealer(lake: Path) -> None:
    ledger = Ledger()
    options = ("--journal-bytes-max", "1MiB", "--seal-after", "1s")
    async with gateway(lake, UDPC, *options) as running:
        async with net.connect(running.urls[0]) as connection:
            for number in range(400):
                body = f"{number}-".encode() + bytes(8_000)
                await connection.send(body)
                ledger.acknowledged.append(body)
        assert any("is full" in line for line in running.said)
        assert await running.stop() == 0
    check_promise(ledger, (row["body"] for row in landed(lake)))


async def test_metrics_tell_what_happened(lake: Path) -> None:
    async with gateway(lake, UDPC, "--metrics", "127.0.0.1:0", "--deny", "10.0.0.0/8", "--log", "json") as running:
        page = await metrics_url(running)
        async with net.connect(running.urls[0]) as connection:
            await connection.send_many([b"12345"] * 300)
            status, text = await fetch(page)
        assert (await fetch(page.replace("/metrics", "/other")))[0] == 404
        assert await running.stop() == 0
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    messages = values['fairway_gateway_messages_total{gateway="gateway",kind="message",protocol="udpc"}']
    assert (status, float(messages)) == (200, 300.0)
    assert (
        float(values['fairway_gateway_message_bytes_total{gateway="gateway",kind="message",protocol="udpc"}']) == 1_500
    )
    url = running.urls[0]
    assert float(values[f'fairway_gateway_sessions{{endpoint="{url}",gateway="gateway"}}']) == 1
    assert float(values['fairway_gateway_commit_seconds_count{gateway="gateway"}']) >= 1
    assert f'where="{url}"' in text
    assert any(line.startswith('{"time": ') and '"level": "info"' in line for line in running.said)


async def test_a_second_gateway_on_one_journal_is_refused_with_the_reason(lake: Path) -> None:
    async with gateway(lake, UDPC) as running:
        said = await asyncio.to_thread(refused, *UDPC, "--lake", str(lake))
        assert said.startswith("1 fairway: the journal ")
        assert f"in use by process {running.process.pid}" in said
        assert "--name" in said
        taken = await asyncio.to_thread(refused, running.urls[0], "--lake", str(lake), "--name", "other")
        assert taken.startswith("1 fairway: cannot listen on 127.0.0.1:")
        assert "choose another" in taken


def test_a_lake_that_cannot_be_written_or_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(*UDPC, "--lake", str(tmp_path / "file")).endswith("file is a file: name a folder.")
    assert refused(*UDPC, "--lake", str(tmp_path)).endswith("holds other things (file): name another folder.")


def test_a_journal_of_a_newer_fairway_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "lake" / layout.GATEWAYS / "gateway"
    home.mkdir(parents=True)
    with sqlite3.connect(home / layout.JOURNAL) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    said = refused(*UDPC, "--lake", str(tmp_path / "lake"))
    assert said.startswith("1 fairway: the journal ")
    assert "format 99" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["udpc://127.0.0.1:0"], "needs at least one URL and a lake"),
        (["--lake", "x"], "needs at least one URL and a lake"),
        (["udpc://127.0.0.1:0?deferred=true", "--lake", "x"], "always acknowledges after the commit"),
        (["tcp://127.0.0.1:0", "--lake", "x"], "is no protocol"),
        ([*UDPC, "--lake", "x", "--name", "a/b"], "must be letters"),
        ([*UDPC, "--lake", "x", "--allow", "here"], "no network"),
        ([*UDPC, "--lake", "x", "--metrics", "9464"], "HOST:PORT"),
        ([*UDPC, "--lake", "x", "--seal-after", "5"], "a number with a unit"),
        ([*UDPC, "--lake", "x", "--log", "xml"], "one of text, json"),
        ([*UDPC, "--lake", "x", "--metrics", "127.0.0.1:65535", "--workers", "2"], "name a port up to 65534"),
    ],
)
def test_a_wrong_setting_is_usage_and_said_in_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gateway", *arguments, "--check"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("fairway: ")
    assert reason in said


def test_a_file_says_the_same_as_options_and_options_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        'urls = ["udpc://127.0.0.1:0"]\nlake = "nowhere"\nname = "edge"\nseal_after = "2s"\nallow = ["::1/128"]\n'
    )
    assert run(["gateway", "--config", str(config), "--name", "other", "--check"]) == 0
    assert capsys.readouterr().out == f"the settings are right: 1 URLs, lake {Path('nowhere').absolute()}, name other\n"
    for line, reason in (("workers = 2.5", "a whole number"), ('verbose = "no"', "must be true or false")):
        config.write_text(f'urls = ["udpc://127.0.0.1:0"]\nlake = "nowhere"\n{line}\n')
        assert run(["gateway", "--config", str(config), "--check"]) == 2
        assert reason in capsys.readouterr().err
    config.write_text("seal_aftr = 3\n")
    assert run(["gateway", "--config", str(config), "--check"]) == 2
    assert "there is no setting 'seal_aftr'" in capsys.readouterr().err


def test_nought_is_a_value_and_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def keep(settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr("fairway.gateway.process.run", keep)
    config = tmp_path / "gateway.toml"
    config.write_text(f'urls = ["udpc://127.0.0.1:0"]\nlake = "{tmp_path}/lake"\nsessions_per_address_max = 7\n')
    before = signal.getsignal(signal.SIGTERM)
    options = ["--half-open-per-prefix-max", "0", "--sessions-per-address-max", "0"]
    assert run(["gateway", "--config", str(config), *options]) == 0
    signal.signal(signal.SIGTERM, before)
    assert (seen[0].half_open_per_prefix_max, seen[0].sessions_per_address_max) == (0, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_urls_with_options_are_served_as_check_says(workers: str, lake: Path) -> None:
    urls = [
        "udpc://127.0.0.1:0?window=64",
        "mrp://127.0.0.1:0?accepts=stamped",
        "rup://127.0.0.1:0?spool_above_bytes=2MiB&window=64",
        "pydevts://127.0.0.1:0?io=portable",
    ]
    assert run(["gateway", *urls, "--lake", str(lake), "--check"]) == 0
    assert not lake.exists()
    async with gateway(lake, urls, "--workers", workers):
        pass


def test_check_builds_what_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Options | None] = []

    def keep(name: str, options: Options | None, random: RandomSource) -> Machine:
        built.append(options)
        return make_machine(name, options, random)

    monkeypatch.setattr("fairway.net.opening.make_machine", keep)
    assert run(["gateway", "rup://127.0.0.1:0?window=64", "--lake", str(tmp_path), "--check"]) == 0
    assert built == [
        make_options(
            "rup",
            deferred=True,
            window=64,
            spool_above_bytes=1 << 20,
            incoming_messages_max=1_024,
            incoming_messages_per_peer_max=64,
        )
    ]


@pytest.mark.parametrize(("package", "options"), [("pyarrow", []), ("prometheus_client", ["--metrics", "127.0.0.1:0"])])
@pytest.mark.parametrize("check", [[], ["--check"]])
def test_without_what_the_extra_brings_it_does_not_start_and_names_the_extra(
    package: str,
    options: list[str],
    check: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fairway.gateway.process.run", lambda settings: 0)
    monkeypatch.setitem(sys.modules, package, None)
    before = signal.getsignal(signal.SIGTERM)
    assert run(["gateway", *UDPC, "--lake", str(tmp_path / "lake"), *options, *check]) == 1
    signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == f"fairway: the package {package} is missing: pip install 'fairway[gateway]'\n"
    assert not (tmp_path / "lake").exists()


async def test_a_sealer_that_fails_ends_the_gateway(lake: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no segment can be written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairway.gateway.sealer._load", fail)
        service = Service(build({"urls": UDPC, "lake": str(lake)}), "gateway")
        await service.open()
        with pytest.raises(RuntimeError, match="no segment can be written"):
            await asyncio.wait_for(service.run(asyncio.Event()), 120)


@pytest.mark.parametrize("options", ["spool_above_bytes=0", "spool_above_bytes=1MiB"])
async def test_a_message_above_the_bound_of_open_receipts_is_acknowledged_and_sealed(options: str, lake: Path) -> None:
    async with gateway(lake, [f"rup://127.0.0.1:0?open_receipt_bytes_max=1KiB&{options}"]) as running:
        async with net.connect(running.urls[0]) as connection:
            await connection.send(bytes(2 << 20))
        assert await running.stop() == 0
    assert [len(row["body"]) for row in landed(lake)] == [2 << 20]


async def test_listening_beyond_loopback_without_an_allow_list_says_so(lake: Path) -> None:
    async with gateway(lake, ["udpc://0.0.0.0:0"]) as running:
        assert any("anybody who reaches" in line for line in running.said)
    async with gateway(lake, ["udpc://0.0.0.0:0"], "--allow", "127.0.0.0/8") as running:
        assert not any("anybody who reaches" in line for line in running.said)


async def test_a_denied_network_gets_no_answer(lake: Path) -> None:
    async with gateway(lake, UDPC, "--deny", "127.0.0.0/8", "--metrics", "127.0.0.1:0") as running:
        with pytest.raises(net.ConnectUnknown):
            await net.connect(running.urls[0] + "?connect_timeout=300ms")
        _, text = await fetch(await metrics_url(running))
    assert 'reason="guard_denied",where="udpc"' in text


async def test_a_sealer_that_falls_behind_holds_back_acknowledgements_until_it_can_go_on(lake: Path) -> None:
    options = ("--seal-after", "100ms", "--backlog-bytes-max", "20KiB")
    async with gateway(lake, UDPC, *options) as running:
        staging = lake / layout.STAGING / "gateway-gateway"
        staging.rmdir()
        staging.touch()
        crowd = Crowd(Sender(running.urls[0], "udpc", Ledger()))
        await crowd.begin(0)
        await until(lambda: any("wait to be sealed" in line for line in running.said))
        await until(lambda: any("not sealing" in line for line in running.said))
        held_at = len(crowd.ledger.acknowledged)
        await asyncio.sleep(0.3)
        assert len(crowd.ledger.acknowledged) <= held_at + 40, "acknowledged though too much waits"
        staging.unlink()
        staging.mkdir()
        await crowd.more()
        await crowd.end(running, lake)


async def test_a_large_message_that_finds_no_room_is_finished_when_there_is_some(lake: Path) -> None:
    full = lake.parent / "full"
    body = bytes(range(256)) * 20_000
    async with gateway(lake, ["rup://127.0.0.1:0"], environment={"FAIRWAY_DISK_FULL_WHILE": str(full)}) as running:
        async with net.connect(running.urls[0] + "?silence=60s") as connection:
            full.touch()
            sending = connection.send_nowait(body)
            await until(lambda: any("no room to spool" in line for line in running.said))
            assert not sending.done()
            full.unlink()
            await sending
        assert any("spooling again" in line for line in running.said)
        assert await running.stop() == 0
    assert [row["body"] for row in landed(lake)] == [body]
