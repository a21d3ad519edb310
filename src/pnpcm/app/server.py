"""The web server of the app: private temporary folder, limits of requests, no other hosts.

The middlewares :class:`HostCheck` and :class:`Guard` are plain ASGI and do not need Gradio.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from pnpcm.app.examples import make_examples
from pnpcm.app.work import KEPT, MEGA, Limits, Work
from pnpcm.arguments import check_count
from pnpcm.errors import ArgumentError, MissingExtraError
from pnpcm.io.staging import remove_leftovers, staging
from pnpcm.names import count_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy: the browser loads nothing from other hosts."""
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
EVERY_ADDRESS = ("", "0.0.0.0", "::")
"""Values of ``--host`` with which the app listens on all addresses of the machine."""
HOST = re.compile(r"(\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:@/\[\]]+))(:\d*)?")
"""The header Host: an IPv6 address in brackets, or another address or a name; and a port."""
FOREIGN = (
    "This request does not name the address of the app; open the address that pnpcm app has "
    "printed. For another name of this machine start it with --host NAME."
)
OUTSIDE = re.compile(rb"<(meta|link)\b[^>]*https?://[^>]*>")
"""Tags of Gradio's page that name another host: pictures for previews in chats."""
ENVIRONMENT = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_SSR_MODE": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
FONTS = ["system-ui", "Segoe UI", "Roboto", "Helvetica", "sans-serif"]
MONO = ["ui-monospace", "Consolas", "monospace"]
ROOM = MEGA
"""Bytes of a request besides its file."""


# start and end -----------------------------------------------------------------------------------
def serve(host: str, port: int, limits: Limits, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or SIGTERM, then delete all temporary files.

    ``say`` is given the address of the page.
    """
    with listening(host, port) as listener, private_folder() as root:
        work = Work(root, limits)
        app = application(work, host)
        import uvicorn

        class Server(uvicorn.Server):  # type: ignore[misc]
            def handle_exit(self, *which: Any) -> None:
                work.close()  # the process would wait for its end
                super().handle_exit(*which)

        say(address(listener))
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that has ended it again
            Server(config).run(sockets=[listener])


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket of the address; an error names the port that is in use."""
    check_count("port", port, 0, 65535)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ArgumentError(
            f"port {port} of host {host} cannot be used ({error}); give another --port or --host"
        ) from error
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    """The address of the page, e.g. http://127.0.0.1:7860."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can read; those of killed processes are deleted."""
    temporary = Path(tempfile.gettempdir())
    remove_leftovers(temporary)
    with staging(temporary) as root:
        yield root


def application(work: Work, host: str) -> Any:
    """The web application on the address ``host``; all its files are below ``work.root``."""
    limits, root = work.limits, work.root
    os.environ.update(ENVIRONMENT | {"GRADIO_TEMP_DIR": str(root / "uploads")})
    try:
        import gradio
        from fastapi import FastAPI

        from pnpcm.app.page import page
    except ImportError as error:
        raise MissingExtraError("the app needs Gradio; pip install pnpcm[app]") from error
    blocks = page(work, make_examples(root / "examples"))
    blocks.queue(max_size=limits.queue)
    blocks.state_session_capacity = KEPT  # Gradio's 10000 would take 0.4 MB each
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, limits=limits)
    app.add_middleware(HostCheck, host=host)  # the last one is asked first
    theme = gradio.themes.Default(primary_hue="teal", font=FONTS, font_mono=MONO)
    theme = theme.set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        color_accent="*primary_700",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_hover_dark="*primary_600",
    )
    return gradio.mount_gradio_app(
        app,
        blocks,
        path="/",
        max_file_size=limits.max_bytes,
        footer_links=[],
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,
        theme=theme,
        css=(files("pnpcm") / "app" / "style.css").read_text(encoding="utf-8"),
    )


# requests and responses --------------------------------------------------------------------------
class HostCheck:
    """ASGI middleware: refuses requests whose header Host does not name the address of the app.

    A page of another site can have its own name resolved to 127.0.0.1 (DNS rebinding) and then read
    what the app answers, but its requests carry that name. Answered are localhost, the loopback
    addresses and ``host``; if ``host`` is all addresses, also the names of this machine and every
    address in numbers, for which no name is resolved. Ports are not compared: a tunnel has another.
    """

    def __init__(self, app: Any, host: str) -> None:
        self.app = app
        self._every = host in EVERY_ADDRESS
        names = ["localhost", "127.0.0.1", "::1", host]
        if self._every:
            names += [socket.gethostname(), socket.getfqdn()]
        self._known = {_address_or_name(name) for name in names}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._names_us(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _answer(send, 403, FOREIGN)
        else:
            await send({"type": "websocket.close", "code": 1008})  # violation of a policy

    def _names_us(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        values = [value for key, value in headers if key == b"host"]
        match = HOST.fullmatch(values[0].decode("latin-1")) if len(values) == 1 else None
        if match is None:
            return False
        host = _address_or_name(match["six"] or match["name"])
        if isinstance(host, ipaddress.IPv6Address) != bool(match["six"]):
            return False
        return host in self._known or (self._every and not isinstance(host, str))


def _address_or_name(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | str:
    """An address that is written in numbers, or a name in lower case."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return text.lower()


class Guard:
    """ASGI middleware: refuses large requests, and changes responses as follows.

    Pages get the headers ``HEADERS`` and lose tags that name other hosts. A full queue and a file
    that is too large are answered with a sentence.
    """

    def __init__(self, app: Any, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"content-length", b"0")
        if not given.isdigit() or int(given) > self.limits.max_bytes + ROOM:
            await _answer(send, 413, self._too_large())
            return
        try:
            await self.app(scope, self._counted(receive), Rewriter(send, self._sentences()).send)
        except Exception as error:
            if type(error).__name__ != "ClientDisconnect":  # a closed tab, or a body too long
                raise

    def _counted(self, receive: Receive) -> Receive:
        """``receive`` that ends a request whose body is longer than allowed."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.limits.max_bytes + ROOM:
                return {"type": "http.disconnect"}
            return message

        return counted

    def _sentences(self) -> dict[int, str]:
        number = self.limits.queue
        waiting = f"{count_of(number, 'restoration')} {'is' if number == 1 else 'are'} waiting"
        full = f"{waiting}, which is the limit; try again later."
        return {413: self._too_large(), 503: full}

    def _too_large(self) -> str:
        return (
            f"The file is too large: the limit is {self.limits.max_bytes / MEGA:g} MB. "
            "pnpcm app --max-megabytes raises it."
        )


class Rewriter:
    """Sends a response; a page and the answers of ``sentences`` are held back and changed."""

    def __init__(self, send: Send, sentences: dict[int, str]) -> None:
        self._send, self._sentences = send, sentences
        self._start: Message = {}
        self._body: bytes | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"")
            if message["status"] in self._sentences or kind.startswith(b"text/html"):
                self._start, self._body = message, b""
                return
        elif self._body is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish()
            return
        await self._send(message)

    async def _finish(self) -> None:
        status = self._start["status"]
        if status in self._sentences:
            await _answer(self._send, status, self._sentences[status])
            return
        body = OUTSIDE.sub(b"", self._body or b"")
        kept = [(k, v) for k, v in self._start["headers"] if k.lower() != b"content-length"]
        more = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
        length = (b"content-length", str(len(body)).encode())
        await self._send(dict(self._start) | {"headers": [*kept, *more, length]})
        await self._send({"type": "http.response.body", "body": body})


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence, "error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
