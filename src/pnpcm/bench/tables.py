"""Tables of cells as CSV (every number) and LaTeX (means, best and second best marked)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from pnpcm.bench.scores import METRICS
from pnpcm.bench.stats import Cell, Group, least, marks, mean

MISSING = "–"
KID = "kid-lpips-vgg"
KINDS = {"gaussian": "Gaussian", "vgg": "VGG", "alex": "AlexNet"}
TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "σ": r"$\sigma$",
    "×": r"$\times$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def to_csv(cells: Iterable[Cell], metrics: Sequence[str]) -> str:
    """One line per cell, with a head; empty: no value. Numbers are not rounded."""
    file = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for cell in cells:
        line = _line(cell, metrics)
        if writer is None:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            writer.writeheader()
        writer.writerow(line)
    return file.getvalue()


def _line(cell: Cell, metrics: Sequence[str]) -> dict[str, object]:
    line: dict[str, object] = {
        "table": cell.group.table,
        "data": cell.group.data,
        "prior": cell.group.prior,
        "task": cell.group.task,
        "sigma_y": cell.group.sigma_y,
        "method": cell.method,
        "steps": cell.steps,
        "rows": cell.rows,
        "failures": cell.failed,
        "reasons": "; ".join(f"{count}× {reason}" for reason, count in cell.failures.items()),
        "trials": cell.trials,
        "is_reference": int(cell.is_reference),
        "nfe": mean(cell.nfe),
        "vjps": mean(cell.vjps),
        "seconds_min": least(cell.seconds),
        "seconds_mean": mean(cell.seconds),
    }
    for name in metrics:
        score, pair = cell.scores.get(name), cell.differences.get(name)
        line |= {
            f"{name}_mean": mean(score),
            f"{name}_std": score.std if score else None,
            f"{name}_count": score.count if score else 0,
            f"{name}_difference": pair.mean if pair else None,
            f"{name}_low": pair.low if pair else None,
            f"{name}_high": pair.high if pair else None,
            f"{name}_win_rate": pair.win_rate if pair else None,
            f"{name}_images": pair.images if pair else 0,
        }
    found = cell.kid
    line |= {f"{KID}_mean": found and found.mean, f"{KID}_std": found and found.std}
    return line


def to_tex(groups: Mapping[Group, Sequence[Cell]], metrics: Sequence[str], *, title: str) -> str:
    """One ``table`` with ``booktabs`` per group: best bold, second best underlined."""
    head = (
        f"% Benchmark {_one_line(title)}: mean ± standard deviation over the images.\n"
        "% Needs \\usepackage{booktabs} and, with pdfLaTeX, \\usepackage[utf8]{inputenc}.\n"
    )
    return head + "".join(_table(group, cells, metrics) for group, cells in groups.items())


def _table(group: Group, cells: Sequence[Cell], metrics: Sequence[str]) -> str:
    used = [name for name in metrics if any(name in cell.scores for cell in cells)]
    ranks = {name: marks(cells, name) for name in used}
    heads = ["Method", *(_metric_head(name) for name in used), "NFE", "VJPs", "Seconds", "Images"]
    lines = []
    for cell in cells:
        label = escape_tex(cell.label)
        if cell.trials is not None:
            label += f"$^{{\\dagger {cell.trials}}}$"
        scores = [_score(cell, name, ranks[name]) for name in used]
        costs = [
            _number(mean(cell.nfe), 0),
            _number(mean(cell.vjps), 0),
            _number(mean(cell.seconds), 2),
            f"{cell.rows - cell.failed}" + (f" of {cell.rows}" if cell.failed else ""),
        ]
        lines.append(" & ".join([label, *scores, *costs]) + r" \\")
    caption = escape_tex(group.name)
    if any(cell.trials is not None for cell in cells):
        caption += r"; $\dagger n$: parameters of a search with $n$ trials"
    return "\n".join(
        [
            "",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{caption}.}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"    \toprule",
            f"    {' & '.join(heads)} \\\\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _metric_head(name: str) -> str:
    row = METRICS[name]
    arrow = r"$\uparrow$" if row.larger_is_better else r"$\downarrow$"
    return escape_tex(heading(name)) + f" {arrow}"


def heading(name: str) -> str:
    """A metric as the head of a column, with its unit."""
    short, _, kind = name.partition("-")
    more = KINDS.get(kind, kind) or METRICS[name].unit
    return f"{short.upper()} ({more})" if more else short.upper()


def _score(cell: Cell, name: str, ranks: Mapping[tuple[str, int | None], int]) -> str:
    score = cell.scores.get(name)
    if score is None:
        return "--"
    digits, mark = METRICS[name].digits, ranks.get((cell.method, cell.steps))
    text = _number(score.mean, digits)
    text = {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(mark or 0, text)
    return text if score.std is None else f"{text} $\\pm$ {score.std:.{digits}f}"


def _number(value: float | None, digits: int) -> str:
    return "--" if value is None else number(value, digits).replace("−", "$-$")


def number(value: float | None, digits: int, *, sign: bool = False) -> str:
    """A number for a table, with a true minus; "–": no value."""
    if value is None:
        return MISSING
    value = round(value, digits) + 0.0  # no sign for a zero
    return f"{value:{'+' if sign and value else ''}.{digits}f}".replace("-", "−")


def escape_tex(text: str) -> str:
    """Text in which no character is a command of LaTeX."""
    return "".join(TEX.get(sign, sign) for sign in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
