"""What the benchmark's rows say: a table for the docs and a plot, python -m kernels.bench_report to write both."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- table of h200.csv -->", "<!-- end of table -->"


class Shape(NamedTuple):
    """One timed problem."""

    batch: int
    heads: int
    topk: int
    extra: int
    lengths: str

    def __str__(self) -> str:
        extra = f" + {self.extra}" if self.extra else ""
        return f"{self.batch} | {self.heads} | {self.topk}{extra} | {self.lengths}"


def read_rows(path: Path) -> dict[Shape, dict[str, tuple[float, float]]]:
    """By shape and provider: median microseconds, and the share of the measured read bandwidth."""
    shapes: dict[Shape, dict[str, tuple[float, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            shape = Shape(int(row["batch"]), int(row["heads"]), int(row["topk"]), int(row["extra"]), row["lengths"])
            found = shapes.setdefault(shape, {})
            found[row["provider"]] = (float(row["median_us"]), float(row["read_share"]))
    return shapes


def markdown_table(shapes: dict[Shape, dict[str, tuple[float, float]]]) -> str:
    """Microseconds of every provider, with fast's ratio to FlashMLA and its share of the read bandwidth."""
    names = list(next(iter(shapes.values())))
    lines = [
        f"| batch | heads | top-k | lengths | {' | '.join(names)} | fast / flashmla | fast, of read bandwidth |",
        "|" + " --- |" * (len(names) + 6),
    ]
    for shape, found in shapes.items():
        times = " | ".join(f"{found[name][0]:.1f}" for name in names)
        ratio = found["fast"][0] / found["flashmla"][0]
        lines.append(f"| {shape} | {times} | {ratio:.2f} | {found['fast'][1]:.0%} |")
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """The document with its table replaced; ValueError without the two marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks the marks {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def draw(shapes: dict[Shape, dict[str, tuple[float, float]]], path: Path, read_bytes_per_us: float) -> None:
    """Time over batch for each provider, and the time in which the bytes alone could be read."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="batch", ylabel="microseconds a call")
    batches = [shape.batch for shape in shapes]
    for name in next(iter(shapes.values())):
        axes.plot(batches, [found[name][0] for found in shapes.values()], marker="o", markersize=3, label=name)
    floor = [found["fast"][0] * found["fast"][1] for found in shapes.values()]
    axes.plot(batches, floor, linestyle="--", color="grey", label=f"bytes at {read_bytes_per_us / 1e6:.2f} TB/s")
    axes.set_title("Sparse MLA decode, 16 heads, top-k 512, H200, cold L2")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Write the table into the docs and the plot beside them."""
    import json

    page = DOCS / "kernel.md"
    page.write_text(with_table(page.read_text(), markdown_table(read_rows(RESULTS / "h200.csv"))))
    facts = json.loads((RESULTS / "h200_sweep.json").read_text())
    draw(read_rows(RESULTS / "h200_sweep.csv"), DOCS / "kernel_h200.svg", facts["read_tb_per_s"] * 1e6)


if __name__ == "__main__":
    main()
