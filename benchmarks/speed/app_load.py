"""Load of ``pnpcm app``: many requests at once on loopback.

Starts the app, sends ``--requests`` small images at once, and prints how many were answered, in
which order, how long they waited, and the memory of the server. Every image has another colour, so
that an answer to another request would be seen. A second run with a short queue counts refusals.

    python benchmarks/speed/app_load.py --requests 50
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

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


async def restore(
    client: httpx.AsyncClient, inputs: list[Any], index: int, number: int, start: float
) -> Answer:
    """One user: upload, request, answer."""
    content = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), colour(number)).save(content, "PNG")
    session = f"load{number}"
    files = {"files": (f"{number}.png", content.getvalue(), "image/png")}
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
                status = await check(client, message, number)
                return Answer(number, status, asked, told, now)
    return Answer(number, "lost", asked, told, time.perf_counter() - start)


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


async def load(address: str, requests: int, method: str) -> list[Answer]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        config = (await client.get("/config")).json()
        call = next(d for d in config["dependencies"] if d.get("api_name") == "restore")
        parts = {c["id"]: c for c in config["components"]}
        inputs = [parts[i]["props"].get("value") for i in call["inputs"]]
        labels = [parts[i]["props"].get("label") for i in call["inputs"]]
        inputs[labels.index("Method")] = method
        start = time.perf_counter()
        jobs = [restore(client, inputs, call["id"], n, start) for n in range(requests)]
        return list(await asyncio.gather(*jobs))


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
    parser.add_argument("--short", type=int, default=8, help="length of the short queue")
    args = parser.parse_args()
    for queue in (args.requests, args.short):
        print(f"\nqueue of {queue}, images of {SIDE}×{SIDE}, method {args.method}")
        with server(queue) as (address, process, _):
            before = memory(process, "VmRSS")
            report(asyncio.run(load(address, args.requests, args.method)), process, before)


if __name__ == "__main__":
    main()
