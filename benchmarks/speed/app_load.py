"""Load of ``pnpcm app``: many requests at once on loopback.

Starts the app, sends ``--requests`` small images at once, and prints how many were answered, in
which order, how long they waited, and the memory of the server. Every image has another colour, so
that an answer to another request would be seen. A second run with a short queue counts refusals.

    python benchmarks/speed/app_load.py --requests 50
    python benchmarks/speed/app_load.py --minutes 30

With ``--minutes``, rounds of good and bad uploads instead: each good one must be restored, each bad
one be answered by one sentence; the memory of the server is that of the last third of the rounds
relative to the first. Exit code 1 if an answer was lost or the memory has grown by more than 10 %.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

GROWTH = 1.1
"""Largest ratio of resident memory, last third to first third of the rounds."""
SIDE = 64
API = "/gradio_api"


@dataclass(frozen=True)
class Answer:
    """``status``: done, refused or lost; times in s since the start of the run.

    ``asked``: when the request was sent, ``joined``: when the server had put it into its queue.
    """

    number: int
    status: str
    asked: float
    joined: float
    ended: float
    text: str = ""


@contextmanager
def server(queue: int) -> Iterator[tuple[str, int, Path]]:
    """Address and process number of a running app, and its folder of temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "pnpcm", "app", "--port", "0", "--queue", str(queue)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": folder},
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split(" ")[0]
            if not address.startswith("http"):
                raise SystemExit("the app did not start; see above")
            yield address, process.pid, Path(folder)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            left = [path.name for path in Path(folder).iterdir()]
            print(f"after the end of the app: {len(left)} temporary files {left or ''}")


def memory(process: int, name: str) -> float:
    """``VmRSS`` (now) or ``VmHWM`` (peak) of a process in MB."""
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else float("nan")


def colour(number: int) -> tuple[int, int, int]:
    return (40 + 3 * (number % 50), 190 - 3 * (number % 50), 60 + number % 7)


def picture(number: int) -> bytes:
    """A PNG of one colour, another one for every number."""
    content = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), colour(number)).save(content, "PNG")
    return content.getvalue()


def bad_pictures(number: int) -> dict[str, bytes]:
    """Uploads that must be refused: no picture, cut, empty, and a header of 20000×20000 pixels."""
    whole = picture(number)
    head = b"IHDR" + struct.pack(">II", 20_000, 20_000) + whole[24:29]
    huge = whole[:12] + head + struct.pack(">I", zlib.crc32(head)) + whole[33:]
    return {"text": b"not a picture", "cut": whole[:100], "empty": b"", "huge": huge}


async def restore(
    client: httpx.AsyncClient,
    inputs: list[Any],
    index: int,
    number: int,
    start: float,
    content: bytes | None = None,
) -> Answer:
    """One user: upload, request, answer; ``content``: None for the picture of this number."""
    session = f"load{number}"
    files = {"files": (f"{number}.png", picture(number) if content is None else content,
                       "image/png")}  # fmt: skip
    path = (await client.post(f"{API}/upload", files=files)).json()[0]
    data = [{"path": path, "meta": {"_type": "gradio.FileData"}}, *inputs[1:]]
    body = {"data": data, "fn_index": index, "session_hash": session}
    asked = time.perf_counter() - start
    joined = await client.post(f"{API}/queue/join", json=body)
    told = time.perf_counter() - start
    if joined.status_code != 200:
        return Answer(number, "refused", asked, told, told, joined.json().get("detail", ""))
    url = f"{API}/queue/data?session_hash={session}"
    async with client.stream("GET", url, timeout=None) as stream:
        async for line in stream.aiter_lines():
            message = json.loads(line[6:]) if line.startswith("data: ") else {}
            if message.get("msg") == "process_completed":
                now = time.perf_counter() - start
                if sentence := refusal(message):
                    return Answer(number, "told", asked, told, now, sentence)
                status = await check(client, message, number)
                return Answer(number, status, asked, told, now)
    return Answer(number, "lost", asked, told, time.perf_counter() - start)


def refusal(message: dict[str, Any]) -> str | None:
    """The sentence of the page if it has no result, without its markup and the number of the file.

    The answer to a good picture has none.
    """
    first = next(iter(message.get("output", {}).get("data", [])), None)
    found = re.search(r'class="card bad"><b>(.*?)</b>', first) if isinstance(first, str) else None
    return re.sub(r"^[0-9]+\.png", "FILE", found[1]) if found else None


async def check(client: httpx.AsyncClient, message: dict[str, Any], number: int) -> str:
    """Whether the answer is the restored image of this request."""
    data = message.get("output", {}).get("data", [])
    after = next((value for value in data if isinstance(value, list) and len(value) == 2), None)
    if after is None:
        return f"error: {data[:1] or message}"
    picture = await client.get(f"{API}/file={after[1]['path']}")
    pixels = np.asarray(Image.open(io.BytesIO(picture.content)).convert("RGB"), float)
    near = np.abs(pixels.mean((0, 1)) - colour(number)).max() < 3
    return "done" if near else "another image"


async def form(client: httpx.AsyncClient, method: str) -> tuple[list[Any], int]:
    """The values of the page for its request "restore", and the number of that request."""
    config = (await client.get("/config")).json()
    call = next(d for d in config["dependencies"] if d.get("api_name") == "restore")
    parts = {c["id"]: c for c in config["components"]}
    inputs = [parts[i]["props"].get("value") for i in call["inputs"]]
    labels = [parts[i]["props"].get("label") for i in call["inputs"]]
    inputs[labels.index("Method")] = method
    return inputs, call["id"]


def client_of(address: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=address, limits=limits, timeout=60)


async def load(address: str, requests: int, method: str) -> list[Answer]:
    async with client_of(address) as client:
        inputs, index = await form(client, method)
        start = time.perf_counter()
        jobs = [restore(client, inputs, index, n, start) for n in range(requests)]
        return list(await asyncio.gather(*jobs))


async def soak(address: str, minutes: float, method: str, process: int) -> bool:
    """Rounds of two good and four bad uploads at once; whether nothing was lost."""
    counts: dict[str, int] = {}
    sizes, lost, sentences = [], [], set()
    async with client_of(address) as client:
        inputs, index = await form(client, method)
        start, number = time.perf_counter(), 0
        while time.perf_counter() - start < 60 * minutes:
            wanted: list[tuple[str, bytes | None]] = [("good", None), ("good", None)]
            wanted += bad_pictures(number).items()
            jobs = [
                restore(client, inputs, index, number + k, start, content)
                for k, (_, content) in enumerate(wanted)
            ]
            for (kind, _), answer in zip(wanted, await asyncio.gather(*jobs), strict=True):
                counts[f"{kind}: {answer.status}"] = counts.get(f"{kind}: {answer.status}", 0) + 1
                if answer.status != ("done" if kind == "good" else "told"):
                    lost.append(f"{kind}, request {answer.number}: {answer.status}")
                sentences |= {f"{kind}: {answer.text}"} if answer.text else set()
            number += len(wanted)
            sizes.append(memory(process, "VmRSS"))
    third = max(1, len(sizes) // 3)
    growth = float(np.median(sizes[-third:]) / np.median(sizes[:third]))
    print(f"{len(sizes)} rounds, {number} requests: {counts}")
    shown = " ".join(f"{size:.0f}" for size in sizes[:: max(1, len(sizes) // 12)])
    print(f"memory of the server in MB after rounds, evenly spaced: {shown}")
    print(f"growth from the first third of the rounds to the last: {growth:.3f} ×")
    for sentence in sorted(sentences)[:20]:
        print(sentence)
    for sentence in lost[:20]:
        print(f"lost: {sentence}")
    print(f"{len(lost)} lost")
    return not lost and growth <= GROWTH


def fairness(answers: list[Answer]) -> int:
    """Largest number of later requests that were answered before one that was in the queue."""
    done = sorted((a for a in answers if a.status == "done"), key=lambda a: a.ended)
    return max((sum(b.joined > a.joined for b in done[:i]) for i, a in enumerate(done)), default=0)


def report(answers: list[Answer], process: int, before: float) -> None:
    counts: dict[str, int] = {}
    for answer in answers:
        counts[answer.status] = counts.get(answer.status, 0) + 1
    done = sorted(a.ended - a.asked for a in answers if a.status == "done")
    print(f"requests {len(answers)}: {counts}")
    if done:
        total = max(a.ended for a in answers)
        print(
            f"seconds: all {total:.1f}, per request {total / len(done):.2f}; waited: median "
            f"{done[len(done) // 2]:.1f}, longest {done[-1]:.1f}"
        )
    print(f"requests that overtook another one, at most: {fairness(answers)}")
    peak, now = memory(process, "VmHWM"), memory(process, "VmRSS")
    print(f"memory of the server in MB: idle {before:.0f}, peak {peak:.0f}, afterwards {now:.0f}")
    for text in sorted({a.text for a in answers if a.text}):
        print(f"refusal: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--method", default="default", help="method of the page, e.g. wiener")
    parser.add_argument("--minutes", type=float, help="rounds of good and bad uploads instead")
    parser.add_argument("--short", type=int, default=8, help="length of the short queue")
    args = parser.parse_args()
    if args.minutes is not None:
        with server(args.requests) as (address, process, _):
            good = asyncio.run(soak(address, args.minutes, args.method, process))
        raise SystemExit(0 if good else 1)
    for queue in (args.requests, args.short):
        print(f"\nqueue of {queue}, images of {SIDE}×{SIDE}, method {args.method}")
        with server(queue) as (address, process, _):
            before = memory(process, "VmRSS")
            report(asyncio.run(load(address, args.requests, args.method)), process, before)


if __name__ == "__main__":
    main()
