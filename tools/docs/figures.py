"""Draw the figures of the documents as SVG files in docs/figures.

    python tools/docs/figures.py

Each figure is a list of boxes, arrows and labels. tests/test_figures.py checks that the
files in docs/figures are the ones that this script draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
FONT_PX = 13
COLOURS = {
    "device": "#dbeafe",
    "variables": "#fde68a",
    "padding": "#e5e7eb",
    "word": "#bfdbfe",
    "warm-up": "#e5e7eb",
    "plain": "#ffffff",
}
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" font-family="sans-serif" font-size="{font}">
<title>{title}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" \
markerHeight="8" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"""


@dataclasses.dataclass
class Figure:
    """Shapes on a white rectangle; sizes and positions are in pixels."""

    title: str
    width: int
    height: int
    shapes: list[str] = dataclasses.field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, text: str, colour: str
    ) -> None:
        """Add a rectangle with a centred text; (x, y) is its upper left corner."""
        fill = COLOURS[colour]
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'fill="{fill}" stroke="#374151"/>'
        )
        self.label(x + width / 2, y + height / 2 + 0.35 * FONT_PX, text)

    def label(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Add a text whose baseline is at y."""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, both_ways: bool = False
    ) -> None:
        """Add an arrow from (x1, y1) to (x2, y2)."""
        start = ' marker-start="url(#head)"' if both_ways else ""
        self.shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
            f'stroke="#111827" marker-end="url(#head)"{start}/>'
        )

    def svg(self) -> str:
        """Return the text of the file."""
        head = HEAD.format(
            width=self.width, height=self.height, font=FONT_PX, title=escape(self.title)
        )
        return head + "\n".join(self.shapes) + "\n</svg>\n"


def draw_batch() -> Figure:
    """Draw a padded batch of three samples."""
    figure = Figure("A padded batch: sample, position, item", 560, 190)
    sentences = (
        ("the", "cat", "sleeps", "</s>", "", ""),
        ("it", "rains", "</s>", "", "", ""),
        ("we", "measure", "every", "single", "batch", "</s>"),
    )
    for row, words in enumerate(sentences):
        y = 40 + 34 * row
        figure.label(70, y + 21, f"sample {row + 1}", "end")
        for column, word in enumerate(words):
            colour = "word" if word else "padding"
            figure.box(80 + 76 * column, y, 76, 34, word, colour)
    figure.label(80, 28, "position 1 to 6: the longest sentence decides", "start")
    figure.label(
        80,
        166,
        "3 samples, 18 positions, 13 items (words with the end of each sentence)",
        "start",
    )
    figure.label(
        80, 183, "Grey positions are padding: computed, but not counted.", "start"
    )
    return figure


def draw_clock() -> Figure:
    """Draw which batches the clock measures."""
    figure = Figure("The clock: warm-up and measured batches", 640, 130)
    figure.box(10, 40, 90, 34, "start", "plain")
    for number in range(3):
        figure.box(100 + 60 * number, 40, 60, 34, "", "warm-up")
    figure.label(190, 90, "10 warm-up batches")
    for number in range(5):
        figure.box(280 + 56 * number, 40, 56, 34, "", "word")
    figure.box(560, 40, 70, 34, "files", "plain")
    figure.arrow(280, 88, 560, 88, both_ways=True)
    figure.label(
        420, 108, "measured seconds: from and to the end of a batch on all devices"
    )
    figure.label(420, 28, "items of the measured batches / measured seconds = rate")
    return figure


def _draw_devices(figure: Figure, y: float, text: str) -> tuple[float, float]:
    """Draw two devices; return the centres of both."""
    figure.box(40, y, 150, 44, f"device 0: {text}", "device")
    figure.box(270, y, 150, 44, f"device 1: {text}", "device")
    return 115, 345


def draw_independent() -> Figure:
    """Draw two replicas that exchange nothing."""
    figure = Figure("independent: nothing is exchanged", 460, 170)
    for centre in _draw_devices(figure, 20, "batch, step"):
        figure.box(centre - 75, 110, 150, 40, "its own variables", "variables")
        figure.arrow(centre, 64, centre, 110, both_ways=True)
    return figure


def draw_parameter_server() -> Figure:
    """Draw towers that share variables on the host."""
    figure = Figure("parameter_server: one copy of the variables", 460, 170)
    figure.box(130, 110, 200, 40, "variables: sum, update", "variables")
    for centre, x in zip(_draw_devices(figure, 20, "tower"), (190, 270), strict=True):
        figure.arrow(centre, 64, x, 110, both_ways=True)
    figure.label(230, 90, "gradients, variables")
    return figure


def draw_replicated() -> Figure:
    """Draw towers that sum their gradients among themselves."""
    figure = Figure("replicated: all-reduce between the devices", 460, 170)
    for centre in _draw_devices(figure, 20, "tower"):
        figure.box(centre - 75, 110, 150, 40, "variables: update", "variables")
        figure.arrow(centre, 64, centre, 110)
    figure.arrow(190, 42, 270, 42, both_ways=True)
    figure.label(230, 34, "all-reduce")
    return figure


def draw_keras_slicing() -> Figure:
    """Draw slices of one batch whose outputs meet in one loss."""
    figure = Figure("keras_slicing: one batch, one loss", 460, 240)
    figure.box(130, 15, 200, 36, "host: one batch", "plain")
    centres = _draw_devices(figure, 95, "slice")
    for centre, x in zip(centres, (190, 270), strict=True):
        figure.arrow(x, 51, centre, 95)
        figure.arrow(centre, 139, x, 185)
    figure.label(230, 165, "outputs")
    figure.box(100, 185, 260, 40, "host: one loss, variables, update", "variables")
    return figure


def draw_workers() -> Figure:
    """Draw two workers that sum their gradients over the network."""
    figure = Figure("Workers: all-reduce over the network", 560, 190)
    for number, x in enumerate((20, 320)):
        figure.box(x, 20, 220, 150, "", "plain")
        figure.label(x + 110, 40, f"worker {number}: one process")
        figure.box(x + 15, 55, 90, 36, "tower", "device")
        figure.box(x + 115, 55, 90, 36, "tower", "device")
        figure.box(x + 15, 115, 190, 36, "variables per device", "variables")
        for centre in (x + 60, x + 160):
            figure.arrow(centre, 91, centre, 115, both_ways=True)
    figure.arrow(240, 95, 320, 95, both_ways=True)
    figure.label(280, 85, "all-reduce")
    return figure


def draw_servers() -> Figure:
    """Draw workers and the servers that hold the variables."""
    figure = Figure("Workers and servers: variables are spread by bytes", 560, 190)
    for number, x in enumerate((30, 330)):
        figure.box(x, 20, 200, 44, f"worker {number}: towers", "device")
        figure.box(x, 126, 200, 44, f"server {number}: variables", "variables")
    for worker_x in (130, 430):
        for server_x in (130, 430):
            figure.arrow(worker_x, 64, server_x, 126, both_ways=True)
    figure.label(280, 38, "gradients,")
    figure.label(280, 54, "variables")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "batch.svg": draw_batch,
    "clock.svg": draw_clock,
    "independent.svg": draw_independent,
    "parameter_server.svg": draw_parameter_server,
    "replicated.svg": draw_replicated,
    "keras_slicing.svg": draw_keras_slicing,
    "workers.svg": draw_workers,
    "servers.svg": draw_servers,
}


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        (FOLDER / name).write_text(draw().svg())


if __name__ == "__main__":
    main()
