"""The web server: no other hosts, no foreign files, bounded uploads and queue, no leftovers."""

import asyncio
import io
import json
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pnpcm.app import server
from pnpcm.app.work import KEPT, Limits

API = "/gradio_api"


# without Gradio ----------------------------------------------------------------------------------
def test_the_folder_is_private_and_goes_with_the_app(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(server.tempfile, "gettempdir", lambda: str(tmp_path))
    left = tmp_path / ".pnpcm-0123456789abcdef"  # no process holds its lock
    left.mkdir()
    with server.private_folder() as root:
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        (root / "upload.png").write_text("secret")
        assert list(tmp_path.iterdir()) == [root]
    assert list(tmp_path.iterdir()) == []


def exchange(app: Any, *, body: list[bytes], length: int | None) -> list[dict[str, Any]]:
    """The messages that the guarded ``app`` sends for a request with ``body`` in parts."""
    parts = [
        {"type": "http.request", "body": part, "more_body": part is not body[-1]} for part in body
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(dict(message))

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    guard = server.Guard(app, Limits(max_bytes=1000))
    asyncio.run(guard({"type": "http", "headers": headers}, receive, send))
    return sent


def answering(status: int, kind: bytes, body: bytes) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body[:5], "more_body": True})
        await send({"type": "http.response.body", "body": body[5:]})

    return app


def test_a_request_that_is_too_long_is_not_read() -> None:
    app = answering(200, b"application/json", b"{}    ")
    (start, body) = exchange(app, body=[b""], length=server.ROOM + 1001)
    assert start["status"] == 413
    assert b"The file is too large: the limit is 0.001 MB." in body["body"]
    assert exchange(app, body=[bytes(server.ROOM), bytes(1001), b""], length=None) == []
    assert exchange(app, body=[bytes(server.ROOM), bytes(1000)], length=None)[0]["status"] == 200


def test_a_full_queue_is_a_sentence_with_its_size() -> None:
    (start, body) = exchange(
        answering(503, b"application/json", b'{"detail": "Queue is full"}'), body=[b""], length=0
    )
    assert start["status"] == 503
    assert b"20 restorations are waiting, which is the limit; try again later." in body["body"]


def test_a_page_loses_other_hosts_and_gets_a_policy() -> None:
    text = b'<meta content="https://x.org/a.jpg"/><meta charset="utf-8"><p>https://y.org</p>'
    (start, body) = exchange(answering(200, b"text/html", text), body=[b""], length=0)
    assert body["body"] == b'<meta charset="utf-8"><p>https://y.org</p>'
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    other = exchange(answering(200, b"text/plain", text), body=[b""], length=0)
    assert b"".join(part["body"] for part in other[1:]) == text


def asked(
    headers: list[tuple[bytes, bytes]], host: str, kind: str = "http"
) -> list[dict[str, Any]]:
    """The messages that answer a request to an app that listens on ``host``."""
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    app = server.HostCheck(answering(200, b"text/plain", b"a page"), host)
    asyncio.run(app({"type": kind, "headers": headers}, receive, send))
    return sent


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1:7860"),
        ("127.0.0.1", "localhost:9000"),  # a tunnel has another port
        ("127.0.0.1", "LocalHost"),
        ("127.0.0.1", "[::1]:7860"),
        ("127.0.0.1", "[0:0:0:0:0:0:0:1]"),
        ("192.168.1.5", "192.168.1.5:7860"),
        ("192.168.1.5", "localhost"),
        ("Workstation.lan", "workstation.LAN:7860"),
        ("2001:db8::5", "[2001:DB8::5]:7860"),
        ("0.0.0.0", "192.168.1.5:7860"),
        ("0.0.0.0", "0.0.0.0:7860"),
        ("::", "[2001:db8::5]:7860"),
    ],
)
def test_requests_to_the_address_of_the_page_are_answered(host: str, named: str) -> None:
    assert asked([(b"host", named.encode())], host)[0]["status"] == 200


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "named",
    [
        "attacker.example",
        "attacker.example:7860",
        "127.0.0.1.attacker.example",
        "localhost.attacker.example",
        "127.0.0.1@attacker.example",
        "attacker.example:127.0.0.1",
        "127.0.0.1:7860:1",
        "[::1",
        "[attacker.example]",
        "[127.0.0.1]",
        "::1",
        "",
        "\xe4.example",
    ],
)
def test_requests_that_name_another_host_are_refused(listening: str, named: str) -> None:
    """A page of attacker.example whose name now resolves to 127.0.0.1 names its own host."""
    (start, body) = asked([(b"host", named.encode("latin-1"))], listening)
    assert start["status"] == 403
    assert b"open the address that pnpcm app has printed" in body["body"]
    assert b"attacker" not in body["body"]


def test_other_addresses_are_refused_unless_the_app_listens_on_all() -> None:
    for named in (b"192.168.1.5", b"127.0.0.2", b"[2001:db8::5]"):
        assert asked([(b"host", named)], "127.0.0.1")[0]["status"] == 403
        assert asked([(b"host", named)], "0.0.0.0")[0]["status"] == 200


def test_the_name_of_the_machine_is_answered_if_the_app_listens_on_all(monkeypatch: Any) -> None:
    monkeypatch.setattr(server.socket, "gethostname", lambda: "Workstation")
    monkeypatch.setattr(server.socket, "getfqdn", lambda: "workstation.lan")
    for named in (b"workstation:7860", b"workstation.lan"):
        assert asked([(b"host", named)], "0.0.0.0")[0]["status"] == 200
        assert asked([(b"host", named)], "127.0.0.1")[0]["status"] == 403


def test_a_request_without_one_host_is_refused() -> None:
    own = (b"host", b"127.0.0.1")
    assert asked([], "127.0.0.1")[0]["status"] == 403
    assert asked([own, own], "127.0.0.1")[0]["status"] == 403
    assert asked([own, (b"host", b"attacker.example")], "127.0.0.1")[0]["status"] == 403


def test_websockets_of_another_host_are_closed_and_other_events_pass() -> None:
    other = [(b"host", b"attacker.example")]
    assert asked(other, "127.0.0.1", "websocket") == [{"type": "websocket.close", "code": 1008}]
    assert asked([], "127.0.0.1", "lifespan")[0]["status"] == 200


# with Gradio -------------------------------------------------------------------------------------
@pytest.fixture
def client(address: str) -> Any:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


def inputs(client: Any) -> tuple[int, list[Any], list[str]]:
    """Number, values and labels of the inputs of the function ``restore``."""
    config = client.get("/config").json()
    call = next(d for d in config["dependencies"] if d.get("api_name") == "restore")
    parts = {c["id"]: c["props"] for c in config["components"]}
    values = [parts[i].get("value") for i in call["inputs"]]
    return call["id"], values, [parts[i].get("label") for i in call["inputs"]]


def answer(client: Any, session: str) -> dict[str, Any]:
    """The message that ends the request of a session."""
    with client.stream("GET", f"{API}/queue/data?session_hash={session}") as stream:
        for line in stream.iter_lines():
            message = json.loads(line[6:]) if line.startswith("data: ") else {}
            if message.get("msg") == "process_completed":
                return dict(message)
    raise AssertionError("the request was not answered")


def ask(client: Any, session: str, path: Any, **changes: Any) -> Any:
    """The answer to joining the queue with the image ``path``."""
    index, values, labels = inputs(client)
    values[0] = {"path": path, "meta": {"_type": "gradio.FileData"}}
    for label, value in ({"Method": "wiener", "What to do": "superres"} | changes).items():
        values[labels.index(label)] = value
    body = {"data": values, "fn_index": index, "session_hash": session}
    return client.post(f"{API}/queue/join", json=body)


def upload(client: Any, side: int = 16) -> str:
    content = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 60)).save(content, "PNG")
    files = {"files": ("a.png", content.getvalue(), "image/png")}
    return str(client.post(f"{API}/upload", files=files).json()[0])


def test_the_served_page_names_no_other_host(client: Any) -> None:
    page = client.get("/")
    head = page.text.split("window.gradio_config")[0]
    assert not re.findall(r"https?://(?!127\.0\.0\.1)[\w.]+", head)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert not re.findall(r"url\(['\"]?https?:", client.get("/theme.css").text)
    assert client.get("/config").json()["analytics_enabled"] is False


def test_the_page_is_not_served_under_another_name(client: Any) -> None:
    for path in ("/", "/config", f"{API}/info"):
        refused = client.get(path, headers={"host": "attacker.example"})
        assert refused.status_code == 403
        assert "open the address that pnpcm app has printed" in refused.json()["detail"]


def test_an_upload_is_restored_and_its_files_can_be_fetched(client: Any) -> None:
    path = upload(client)
    assert ask(client, "api", path).status_code == 200
    status, *shown = answer(client, "api")["output"]["data"]
    assert "Done." in status
    (slider,) = [v for v in shown if isinstance(v, list) and len(v) == 2]
    picture = client.get(f"{API}/file={slider[1]['path']}")
    assert Image.open(io.BytesIO(picture.content)).size == (64, 64)


@pytest.mark.parametrize("secret", ["/etc/hostname", "http://127.0.0.1:1/x.png", "../secret.png"])
def test_files_that_were_not_uploaded_are_neither_read_nor_fetched(
    secret: str, client: Any, tmp_path: Path
) -> None:
    session = f"secret{len(secret)}"
    assert ask(client, session, secret).status_code == 200
    message = answer(client, session)
    assert not message["success"]
    assert "Traceback" not in str(message)
    assert client.get(f"{API}/file={secret}").status_code in (403, 404)


def test_large_files_and_large_images_are_refused(client: Any) -> None:
    files = {"files": ("a.png", bytes(64_000_001), "image/png")}
    refused = client.post(f"{API}/upload", files=files)
    assert refused.status_code == 413
    assert refused.json()["detail"].startswith("The file is too large: the limit is 64 MB.")
    ask(client, "large", upload(client, 129))
    status, *_ = answer(client, "large")["output"]["data"]
    assert "a.png has 129×129 = 16641 pixels" in status
    assert 'class="card bad"' in status


STATES = f"""
import sys
from pathlib import Path
from pnpcm.app import server
from pnpcm.app.work import Limits, Work
app = server.application(Work(Path(sys.argv[1]), Limits()), "127.0.0.1")
parts = [getattr(route, "app", None) for route in app.routes]
(holder,) = (part.state_holder for part in parts if hasattr(part, "state_holder"))
for number in range({KEPT} + 5):
    holder[f"session {{number}}"]
print(len(holder.session_data))
"""


def test_the_states_of_few_sessions_are_kept(tmp_path: Path) -> None:
    """Each takes 0.4 MB, and Gradio would keep 10 000. In a process of its own, for its loop."""
    pytest.importorskip("gradio", reason="the page needs Gradio: pip install pnpcm[app]")
    words = [sys.executable, "-c", STATES, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) <= KEPT + 1


def test_requests_beyond_the_queue_are_refused_with_a_sentence(client: Any) -> None:
    path = upload(client, 32)
    slow = {"Method": "dps", "What to do": "superres", "Factor": 4}
    replies = []
    for i in range(4):
        replies.append(ask(client, f"full{i}", path, **slow))
        time.sleep(0.3 if i == 0 else 0)  # the first one leaves the queue
    assert [reply.status_code for reply in replies] == [200, 200, 200, 503]
    text = "2 restorations are waiting, which is the limit; try again later."
    assert replies[3].json()["detail"] == text
    for i, reply in enumerate(replies[1:3], start=1):
        body = {"session_hash": f"full{i}", "fn_index": 0, "event_id": reply.json()["event_id"]}
        client.post(f"{API}/cancel", json=body)
    client.post(f"{API}/run/stop", json={"data": [], "session_hash": "full0"})
    assert "Stopped." in answer(client, "full0")["output"]["data"][0]
