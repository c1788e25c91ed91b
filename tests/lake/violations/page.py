"""The list of all rules as a page: `python -m tests.lake.violations.page` prints docs/violations.md."""

from __future__ import annotations

from collections.abc import Iterator

from fairway.core.tables import PROTOCOLS
from fairway.lake.violations import rules
from fairway.lake.violations.rule import Rule

HEAD = """# Rules that a capture can show broken

`fairway analyze` writes a row of the table `violations` for each datagram that breaks one. A rule is named by its
clause in [wire/](wire/README.md); a clause may have several. This page is made from `src/fairway/lake/violations`:

```sh
python -m tests.lake.violations.page > docs/violations.md
```

An **error** is a peer that is wrong. A **warning** is harmless, or explicable: every duration and bound is a default
that an endpoint may change, and pydevts expects datagrams that were damaged on the way.

Only what a capture can prove at its point is reported. Whatever the network loses, doubles, delays or reorders breaks
no rule, nor does an endpoint that was started anew, nor a peer whose address changes. So counts leave room for a
network that doubles every datagram on both ways, and two datagrams have an order only when they are 3 s apart, or when
one answers the other. Durations have a margin: the column *reported* says from when on a rule is reported, where that
is later than what it asks for.

Rules marked *from the start* compare with everything that passed before: they apply where the capture holds the
beginning of the conversation, and both directions; for rup and pydevts, which begin without a sign, mostly after 5 to
15 s of it. Where a file is damaged they report nothing more of the conversations that go on behind the damage. A
capture tool that drops datagrams makes such rules report answers to what it dropped.

The judgement stands in each rule's SQL and nowhere else. It looks at the table `packets`, whose columns `first_at_ns`,
`differs`, `acknowledges_kind`, `acknowledges_at_ns` and `echoes_at_ns` say which packet one repeats or acknowledges.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(line for protocol in PROTOCOLS for line in _section(protocol))])


def _section(protocol: str) -> Iterator[str]:
    yield f"## {protocol}\n"
    yield "| clause | severity | from the start | expected | reported |"
    yield "|---|---|---|---|---|"
    yield from dict.fromkeys(_line(rule) for rule in sorted(rules(protocol), key=_place))
    yield ""


def _line(rule: Rule) -> str:
    start = "yes" if rule.needs_start else ""
    return f"| {rule.clause} | {rule.severity} | {start} | {rule.expected} | {rule.reported} |"


def _place(rule: Rule) -> tuple[bool, int, int, str]:
    name, _, number = rule.clause.partition("-")
    chapter, _, place = number.partition(".")
    return name == "ALL", int(chapter), int(place), rule.expected


if __name__ == "__main__":
    print(page(), end="")
