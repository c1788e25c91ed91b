"""A grid says what will be run, or, in one sentence, why it cannot be."""

from __future__ import annotations

from importlib.resources import files

import pytest

from fairway.lake.lab.grid import BadGrid, parse

GRIDS = files("fairway.lake.lab") / "grids"


def test_a_sweep_is_the_product_of_its_lists_and_seeds_go_fastest() -> None:
    cells = parse(
        """
        [[sweep]]
        protocol = ["udpc", "mrp"]
        seeds = 2
        options.mrp = { layout = ["stamped", "piggyback"] }
        link = { loss = [0, 0.5] }
        load = { messages = 7 }
        """
    )
    shapes = [(cell.protocol, cell.options.get("layout"), cell.link.loss, cell.seed) for cell in cells]
    assert shapes == [
        (protocol, layout, loss, seed)
        for protocol, layout in [("udpc", None), ("mrp", "stamped"), ("mrp", "piggyback")]
        for loss in (0.0, 0.5)
        for seed in (1, 2)
    ]
    assert {cell.load.messages for cell in cells} == {7}


def test_a_cell_that_two_sweeps_name_is_run_once() -> None:
    sweep = '[[sweep]]\nprotocol = "udpc"\nseeds = 3\n'
    assert len(parse(sweep + sweep)) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("protocol =", "is not TOML"),
        ("", "has no [[sweep]]"),
        ("[[sweep]]\nseeds = 2", "protocol is an empty list"),
        ('[[sweep]]\nprotocol = "tcp"', "the protocols are udpc, mrp, rup, pydevts"),
        ('[[sweep]]\nprotocol = "udpc"\nspeed = 1', "unknown key 'speed'; known are protocol, seeds"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { los = 1 }', "unknown key 'los'; known are loss, burst_length"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { loss = [] }', "link.loss is an empty list"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { loss = 1.5 }', "loss is 1.5; it must be from 0 to 1"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { loss = "high" }', "link.loss is 'high'; it must be a number"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { loss = true }', "link.loss is True; it must be a number"),
        ('[[sweep]]\nprotocol = "udpc"\noptions = { layout = "stamped" }', "unknown key 'layout'"),
        ('[[sweep]]\nprotocol = "udpc"\noptions.mrp = { window = 1 }', "a protocol that this sweep does not run"),
        ('[[sweep]]\nprotocol = "mrp"\noptions = { window = 0 }', "window is 0"),
        ('[[sweep]]\nprotocol = "udpc"\nload = { size = 100000 }', "udpc carries 0 to 65494 bytes"),
        ('[[sweep]]\nprotocol = "udpc"\nload = { messages = 0 }', "messages is 0"),
        ('[[sweep]]\nprotocol = "udpc"\nseeds = 0', "seeds is 0"),
        ('[[sweep]]\nprotocol = "udpc"\nseeds = [9223372036854775808]', "seeds is larger than any number"),
        (f'[[sweep]]\nprotocol = "udpc"\nlink = {{ loss = {"1" * 401} }}', "link.loss is larger than any number"),
        (f'[[sweep]]\nprotocol = "udpc"\nseeds = {"1" * 5_001}', "is not TOML"),
        ('[[sweep]]\nprotocol = "mrp"\noptions.mrp = 5', "options.mrp is not a table"),
        ('[[sweep]]\nprotocol = "udpc"\nlink = { loss = 0.9, burst_length = 2 }', "it can be 0.667 at the most"),
        (
            '[[sweep]]\nprotocol = "rup"\noptions = { message_bytes_max = 1000 }\nload = { size = 2000 }',
            "rup carries 0 to 1000 bytes",
        ),
        (
            (
                '[[sweep]]\nprotocol = "udpc"\nseeds = 100000\nload.size = [1,2,3,4,5,6,7,8,9,10]\n'
                "link.delay_ms = [1,2,3,4,5,6,7,8,9,10]\nlink.jitter_ms = [1,2,3,4,5,6,7,8,9,10]\n"
                "load.messages = [1,2,3,4,5,6,7,8,9,10]"
            ),
            "has 1,000,000,000 cells; at most 1,000,000",
        ),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_starts(text: str, said: str) -> None:
    with pytest.raises(BadGrid) as caught:
        parse(text)
    sentence = str(caught.value)
    assert said in sentence
    assert "\n" not in sentence


def test_the_grids_that_come_with_fairway_are_as_large_as_they_say() -> None:
    assert 200 <= len(parse((GRIDS / "small.toml").read_text())) <= 500
    standard = parse((GRIDS / "standard.toml").read_text())
    assert len(standard) >= 10_000
    assert f"{len(standard):,} runs" in (GRIDS / "standard.toml").read_text()
