"""Progress on stderr and results on stdout of the commands that reconstruct many inputs."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from pnpcm.names import count_of, printable

if TYPE_CHECKING:
    from pnpcm.recon.record import Outcome


def say(text: object, *, error: bool = False) -> None:
    """Print ``text`` to stdout or stderr, where names of files cannot control the terminal."""
    stream = sys.stderr if error else sys.stdout
    print(*map(printable, str(text).split("\n")), sep="\n", file=stream, flush=True)


def json_text(content: Any, *, indent: int | None = None) -> str:
    """``content`` as JSON, in ASCII unless stdout is UTF-8, without control characters."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(content, indent=indent, ensure_ascii=plain)
    return re.sub(
        "[\x7f-\uffff]",
        lambda c: c[0] if printable(c[0]) == c[0] else f"\\u{ord(c[0]):04x}",
        text,
    )


PLAIN = {"×": "x", "·": "-", "–": "-", "−": "-", "∞": "inf", "≥": ">=", "≤": "<=", "≈": "~"}
PLAIN |= {"…": "...", "→": "->", "‖": "|", "σ": "sigma", "ρ": "rho", "δ": "delta", "μ": "mu"}
"""What is printed on terminals without these characters; for others a question mark."""


def replace_unencodable() -> None:
    """Print replacements for characters that the encoding of stdout or stderr does not have."""

    def replaced(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        text = error.object[error.start : error.end]
        return "".join(PLAIN.get(c, "?") for c in text), error.end

    codecs.register_error("pnpcm", replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pnpcm")


@contextmanager
def starting() -> Iterator[None]:
    """A line on a terminal while torch is imported, which takes seconds."""
    if "torch" in sys.modules or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("pnpcm: loading torch"):
        yield


def count_inputs(files: Sequence[Path], passed: Sequence[Outcome]) -> int:
    """The number of inputs that count for the exit code: files, and folders without any."""
    return len(files) + sum(one.status == "failed" for one in passed)


class Display:
    """Shows what a command does with each of its inputs.

    On a terminal: bars with the time that remains, which disappear at the end. Otherwise one line
    on stderr when the solver starts on an input, none with ``as_json``. Results are printed to
    stdout while no bar is shown, so that a file or a pipe contains nothing else.
    """

    def __init__(self, command: str, count: int, *, as_json: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.command, self.count, self.as_json = command, count, as_json
        self.index = self.failed = 0
        console = Console(stderr=True)
        self.live = console.is_terminal
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self.live,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._whole = self.bars.add_task(command, total=count, visible=count > 1)
        self._one = self.bars.add_task("", total=None)
        self._shown = self._text = ""
        self._announced = -1

    def __enter__(self) -> Self:
        self._turn(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turn(False)

    def _turn(self, on: bool) -> None:
        if self.live:  # elsewhere stop() would print an empty line
            (self.bars.start if on else self.bars.stop)()

    def __call__(self, what: str, done: float = 0, total: int = 0) -> None:
        """Show ``what`` is done now, and ``done`` of its ``total`` parts (0: unknown)."""
        text = what = printable(what)
        if total:
            text += f" {min(int(done) + 1, total)} of {total}"
            if not (self.live or self.as_json) and self._announced < self.index:
                self._announced = self.index
                place = f" {self.index + 1} of {self.count}" if self.count > 1 else ""
                print(f"{self.command}{place}: {text}", file=sys.stderr, flush=True)
        if what != self._shown:
            self._shown = what
            self.bars.remove_task(self._one)
            self._one = self.bars.add_task(text, total=total or None)
        self.bars.update(self._one, completed=done, description=text)
        self._count(done / total if total else 0)
        if text != self._text:  # rich draws ten times a second: a short step would not be seen
            self._text = text
            self.bars.refresh()

    def _count(self, part: float = 0) -> None:
        """Show the number of finished inputs; ``part``: share of the present one that is done."""
        whole = f"{self.command}, {self.index} of {self.count} done"
        self.bars.update(self._whole, completed=self.index + part, description=whole)

    def loading(self, prior: str) -> None:
        """Show that a prior is loaded."""
        self(f"loading prior {prior}")

    @contextmanager
    def connected(self, workers: int | None, scheduler: str | None) -> Iterator[Any]:
        """The client of :func:`pnpcm.cluster.connect`; its workers are shown."""
        from pnpcm.cluster import connect

        if workers is not None or scheduler is not None:
            self("starting workers")
        with connect(workers, scheduler) as client:
            if client is not None:
                self(count_of(len(client.nthreads()), "worker"))
            yield client

    def print(self, text: str) -> None:
        """Print ``text`` to stdout while no bar is shown."""
        self._turn(False)
        say(text)
        self._turn(True)

    def warn(self, message: str) -> None:
        """Print a sentence about an input to stderr while no bar is shown."""
        self._turn(False)
        say(f"pnpcm: {message}", error=True)
        self._turn(self.index < self.count)

    def pass_over(self, outcomes: Iterable[Outcome]) -> None:
        """Print a sentence about each input that is not read; failed ones count for the exit."""
        for one in outcomes:
            failed = one.status == "failed"
            self.warn(one.message if failed else f"skipped: {one.message}")
            self.failed += failed
            self.index += failed

    def each(
        self, inputs: Sequence[Path], text_of: Callable[[Path], str], spelled: Callable[[str], str]
    ) -> None:
        """Print the text of each input, a sentence for those that fail; exit as :meth:`show`."""
        from pnpcm.recon.record import check_input, sentence

        for path in inputs:
            try:
                check_input(path)
                self.print(text_of(path))
            except Exception as error:  # one bad input must not end a run of thousands
                self.failed += 1
                self.warn(spelled(sentence(path, error)))
            self.index += 1
            self._count()
        if self.failed:
            raise typer.Exit(2 if self.count == 1 else 1)

    def show(self, outcomes: Iterable[Outcome], spelled: Callable[[str], str]) -> None:
        """Print one line (or JSON object) per outcome; exit with 1 or 2 on failures.

        ``spelled``: a message in the spelling of the command line.
        """
        statuses: list[str] = []
        folders: set[Path] = set()
        for outcome in outcomes:
            self._turn(False)
            statuses.append(outcome.status)
            folders |= {path.parent for path in outcome.outputs}
            if self.as_json:
                say(json_text(_line(outcome)))
            elif outcome.status in ("failed", "skipped"):
                word = "skipped: " if outcome.status == "skipped" else ""
                self.warn(word + spelled(outcome.message))
            else:
                self._result(outcome)
            self.index += outcome.status != "skipped"
            self._count()
            self._turn(self.index < self.count)
        if len(statuses) > 1 and not self.as_json:
            words = ("done", "kept", "failed", "skipped")
            counts = [f"{statuses.count(w)} {w}" for w in words if w in statuses]
            place = f"; results in {os.path.commonpath(folders)}" if folders else ""
            say(", ".join(counts) + place)
        if "failed" in statuses:
            raise typer.Exit(2 if self.count == 1 else 1)

    def _result(self, outcome: Outcome) -> None:
        line = f"{outcome.status}: {', '.join(map(str, outcome.outputs))}"
        if self.count > 1:
            check = outcome.record.get("check", {})
            verdict = "; ".join([check.get("verdict", ""), *check.get("warnings", [])])
            line = f"{outcome.input} · {verdict} · {line}"
        elif outcome.message:
            say(outcome.message)
        say(line.replace("\n", "\\n"))


def _line(outcome: Outcome) -> dict[str, Any]:
    name = os.fsencode(outcome.input).decode(errors="backslashreplace")
    found: dict[str, Any] = {"input": name, "status": outcome.status}
    if outcome.status in ("failed", "skipped"):
        return found | {"error": outcome.message}
    return found | {"output": str(outcome.outputs[0])} | dict(outcome.record)
