"""Rows reach people as a table and programs as JSON lines."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.frame import print_rows

ROWS = [
    {"protocol": "udpc", "headers_per_second": 12_345_678, "share": 0.98765, "enough": True, "note": None},
    {"protocol": "mrp", "headers_per_second": 5, "share": 1_234.5, "enough": False, "note": "slow"},
]


def test_json_lines_are_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(iter(ROWS), title="Speed", as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_a_table_names_its_columns_and_groups_its_digits(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, title="Speed", as_json=False)
    lines = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["Speed"]
    assert lines[1] == ["protocol", "headers per second", "share", "enough", "note"]
    assert lines[3:] == [["udpc", "12,345,678", "0.988", "yes", "-"], ["mrp", "5", "1,234", "no", "slow"]]


def test_no_rows_are_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], title="Speed", as_json=False)
    assert "udpc" not in capsys.readouterr().out
