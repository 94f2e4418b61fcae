"""Draws docs/figures/memory_timeline.svg: who holds the memory during two training steps of a decoder.

Run in the repository's root: ``python -m docs.figures.memory_timeline``. The phases are the metadata of the history's entries.
"""

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import torch
from torch.accel import memory
from torch.nn import functional as F

from tests.training.decoder_lm import Decoder, text

COLOURS = {"model": "#4e79a7", "forward": "#59a14f", "backward": "#f28e2b", "optimizer": "#b07aa1"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 960, 420, 64, 56, 40, 16
STEPS = 2


def record() -> dict[str, Any]:
    """The snapshot after two steps; an entry's metadata is the phase that was on, and "step" between steps."""
    memory._record_memory_history(stacks="python", clear_history=True)
    torch.manual_seed(0)
    memory._set_memory_metadata("model")
    model, batches = Decoder().to("accel"), text().to("accel")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for batch in batches[:STEPS]:
        memory._set_memory_metadata("forward")
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        memory._set_memory_metadata("backward")
        loss.backward()
        memory._set_memory_metadata("optimizer")
        optimizer.step()
        optimizer.zero_grad()
        del loss
    torch.accel.synchronize()
    memory._set_memory_metadata("")
    snapshot = memory._snapshot()
    memory._record_memory_history(None, clear_history=True)
    return snapshot


def timeline(entries: list[dict[str, Any]]) -> tuple[list[dict[str, int]], list[str]]:
    """After each allocation and free: the bytes held by what each phase allocated, and the phase that was on."""
    held = dict.fromkeys(COLOURS, 0)
    owners: dict[int, tuple[str, int]] = {}
    points, phases = [], []
    for entry in entries:
        if entry["action"] == "alloc" and entry["user_metadata"] in COLOURS:
            owners[entry["addr"]] = entry["user_metadata"], entry["size"]
            held[entry["user_metadata"]] += entry["size"]
        elif entry["action"] == "free_completed" and entry["addr"] in owners:
            phase, size = owners.pop(entry["addr"])
            held[phase] -= size
        else:
            continue
        points.append(dict(held))
        phases.append(entry["user_metadata"] or phases[-1])
    return points, phases


def draw(points: list[dict[str, int]], phases: list[str]) -> str:
    """The stacked areas as an SVG."""
    totals = [sum(point.values()) for point in points]
    peak = max(totals)
    top = peak * 1.08

    def x(index: float) -> float:
        return round(LEFT + index / len(points) * (WIDTH - LEFT - RIGHT), 1)

    def y(size: float) -> float:
        return round(HEIGHT - BOTTOM - size / top * (HEIGHT - BOTTOM - TOP), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        "<title>Device memory during two training steps</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    layers, below = [], [0] * len(points)
    for number, (phase, colour) in enumerate(COLOURS.items()):
        below = [base + point[phase] for base, point in zip(below, points, strict=True)]
        steps = [f"V{y(v)}H{x(i + 1)}" for i, v in enumerate(below) if i + 1 == len(below) or v != below[i + 1]]
        layers.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}{"".join(steps)}V{HEIGHT - BOTTOM}Z" fill="{colour}"/>')
        parts.append(f'<rect x="{LEFT + 160 * number}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 160 * number + 18}" y="22">allocated in {escape(phase)}</text>')
    parts += reversed(layers)  # the tallest first, so that each shows above the next
    starts = [i for i in range(len(phases)) if i == 0 or phases[i] != phases[i - 1]]
    for i, end in zip(starts, [*starts[1:], len(phases)], strict=True):
        parts.append(f'<path d="M{x(i)} {TOP - 8}V{HEIGHT - BOTTOM}" stroke="#888" stroke-dasharray="2 3"/>')
        if x(end) - x(i) > 50:
            parts.append(f'<text x="{x(i) + 4}" y="{TOP - 12}" fill="#555">{escape(phases[i])}</text>')
    parts.append(f'<path d="M{LEFT} {TOP - 8}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="black" fill="none"/>')
    step = next(s for s in (1 << k for k in range(10, 40)) if top / s <= 6)
    for size in range(0, int(top) + 1, step):
        label = f"{size / (1 << 20):g} MiB"
        parts.append(f'<text x="{LEFT - 6}" y="{y(size) + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<path d="M{LEFT - 4} {y(size)}H{LEFT}" stroke="black"/>')
    at = totals.index(peak)
    parts.append(f'<circle cx="{x(at)}" cy="{y(peak)}" r="3"/>')
    parts.append(f'<text x="{x(at) + 6}" y="{y(peak) - 4}">peak {peak / (1 << 20):.2f} MiB</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        f"{len(points)} allocations and frees, in order</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    picture = draw(*timeline(record()["device_traces"][0]))
    Path(__file__).with_suffix(".svg").write_text(picture)
