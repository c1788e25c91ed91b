"""The picture of a run on links: for each link a group of bars, one for each peer, as high as its share of the link."""

from __future__ import annotations

from collections.abc import Mapping

HEIGHT, BAR, GAP, LEFT, TOP = 240, 14, 26, 40, 34
OURS, THEIRS = ("#1f5fa8", "#4f8fd0", "#8bb8e8"), ("#444444", "#777777", "#9a9a9a", "#bbbbbb", "#d5d5d5")
STYLE = "text{font:12px sans-serif;fill:#222}.small{font-size:10px}"


def draw(shares: Mapping[str, Mapping[str, float]], ours: frozenset[str]) -> str:
    """Return SVG of the shares by link and peer; our own bars are blue."""
    peers = list(dict.fromkeys(peer for group in shares.values() for peer in group))
    blue, grey = iter(OURS), iter(THEIRS)
    colours = {peer: next(blue if peer in ours else grey) for peer in peers}
    group_width = BAR * len(peers) + GAP
    width, bottom = LEFT + group_width * len(shares) + GAP, TOP + HEIGHT
    parts = [_line(LEFT, width, bottom - round(HEIGHT * share), f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1)]
    for number, (link, group) in enumerate(shares.items()):
        left = LEFT + GAP // 2 + number * group_width
        parts += [
            f'<rect x="{left + BAR * peers.index(peer)}" y="{bottom - HEIGHT * share:.1f}" width="{BAR - 2}" '
            f'height="{HEIGHT * share:.1f}" fill="{colours[peer]}"><title>{link}, {peer}: {share:.2f}</title></rect>'
            for peer, share in group.items()
        ]
        parts.append(
            f'<text x="{left + BAR * len(peers) / 2:.0f}" y="{bottom + 18}" text-anchor="middle">{link}</text>'
        )
    for number, peer in enumerate(peers):
        x = LEFT + number * 92
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colours[peer]}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{peer}</text>')
    width = max(width, LEFT + 92 * len(peers))
    size = f'width="{width}" height="{bottom + 30}" viewBox="0 0 {width} {bottom + 30}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def _line(left: int, right: int, y: int, label: str) -> str:
    return (
        f'<path d="M{left} {y}H{right}" stroke="#ddd"/>'
        f'<text class="small" x="{left - 6}" y="{y + 4}" text-anchor="end">{label}</text>'
    )
