"""Rights to read and to act: tokens, cookies, origins, hosts, rates; and no path leads out."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncmon as am
from asyncmon.monitor.guard import LOGIN_SECS, Rates, is_loopback
from tests.monitor.scripted import BEARER, TOKEN, ScriptedRun, answered, client

STOP = "/api/runs/digits/stop"
PRIVATE = ["/api/runs", "/api/runs/digits", "/api/events", "/metrics", "/api/runs/digits/log"]


def app(token: str | None = TOKEN) -> Any:
    return am.monitor.create_app(ScriptedRun(), token=token)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", PRIVATE)
async def test_reading_needs_the_token(path: str) -> None:
    async with client(app(), "203.0.113.9") as http:
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        wrong = await http.get(path, headers={"authorization": "Bearer a-token-that-is-another"})
        assert (wrong.status_code, wrong.json()["error"]) == (401, "The token is wrong.")
        for scheme in ("Basic", "bearer x"):
            refused = await http.get(path, headers={"authorization": f"{scheme} {TOKEN}"})
            assert refused.status_code == 401
        if path != "/api/events":
            assert (await http.get(path, headers=BEARER)).status_code == 200
        assert (await http.get(f"{path}?token={TOKEN}")).status_code == 401


@pytest.mark.asyncio
async def test_acting_needs_the_token_and_the_page_itself_does_not() -> None:
    async with client(app(), "203.0.113.9") as http:
        assert (await http.post(STOP)).status_code == 401
        assert (await http.post(STOP, headers=BEARER)).status_code == 200
        assert (await http.get("/")).status_code == 200
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.asyncio
async def test_a_login_is_a_cookie_that_is_not_the_token() -> None:
    async with client(app()) as http:
        assert (await http.post("/api/login", json={"token": "x"})).status_code == 401
        half = await http.post("/api/login", content=b'{"token": "\\ud800"}')
        assert half.status_code == 401
        assert (await http.post("/api/login", json={})).status_code == 400
        answer = await http.post("/api/login", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert (await http.get("/api/runs")).status_code == 200
        assert (await http.post(STOP, headers={"sec-fetch-site": "same-origin"})).status_code == 200
        assert (await http.post(STOP, headers={"sec-fetch-site": "same-site"})).status_code == 403
        name, value = next(iter(http.cookies.items()))
        digit = "1" if value[0] != "1" else "2"
        for forged in (digit + value[1:], value[:-1], "9" * 30, "x.y", "", value.partition(".")[0]):
            http.cookies.clear()
            http.cookies.set(name, forged)
            assert (await http.get("/api/runs")).status_code == 401, forged


@pytest.mark.asyncio
async def test_a_cookie_is_sent_back_to_where_the_monitor_is_mounted_only() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/train", app())])
    async with client(outer, base_url="https://service.example") as http:
        answer = await http.post("/train/api/login", json={"token": TOKEN})
        assert {"Path=/train", "Secure"} <= set(answer.headers["set-cookie"].split("; "))
        assert (await http.get("/train/api/runs")).status_code == 200


@pytest.mark.asyncio
async def test_a_mounted_page_logs_its_address_once(caplog: pytest.LogCaptureFixture) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    caplog.set_level("INFO", "asyncmon")
    outer = Starlette(routes=[Mount("/train", app())])
    async with client(outer, base_url="http://127.0.0.1:8000") as http:
        for _ in range(2):
            await http.get("/train/")
    assert [line for line in caplog.messages if "page" in line] == [
        "The monitor's page: http://127.0.0.1:8000/train/"
    ]


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_login_expires() -> None:
    served = app()
    async with client(served) as http:
        answer = await http.post("/api/login", json={"token": TOKEN})
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    async with client(served, headers=cookie) as http:
        await asyncio.sleep(LOGIN_SECS - 5)
        assert (await http.get("/api/runs")).status_code == 200
        await asyncio.sleep(10)
        assert (await http.get("/api/runs")).status_code == 401


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": "http://127.0.0.1:6060"}, 200),
        ({"origin": "http://127.0.0.1:8080"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[", "host": "127.0.0.1:6060"}, 403),
        ({"origin": "https://evil.example", "host": "evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "127.0.0.1.nip.io"}, 403),
        ({"host": ""}, 403),
        ({"host": "["}, 403),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:6060"}, 200),
    ],
)
async def test_without_a_token_only_the_own_page_on_this_machine_acts(
    headers: dict[str, str], status: int
) -> None:
    async with client(app(None)) as http:
        assert (await http.post(STOP, headers=headers)).status_code == status


@pytest.mark.asyncio
async def test_without_a_token_other_machines_are_not_answered() -> None:
    async with client(app(None), "203.0.113.9") as http:
        answer = await http.get("/api/runs")
        assert answer.status_code == 403
        assert "Give it a token" in answer.json()["error"]
    async with client(app(None)) as http:
        assert (await http.get("/api/runs", headers={"host": "evil.example"})).status_code == 403
        assert (await http.get("/", headers={"host": "evil.example"})).status_code == 403


@pytest.mark.parametrize("token", ["", "short", "with a\nnewline and more", "ü" * 20])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="16 printable ASCII characters"):
        app(token)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_guesses_and_actions_are_bounded() -> None:
    async with client(app()) as http:
        wrong = {"authorization": "Bearer not-the-one"}
        found = [(await http.get("/api/runs", headers=wrong)).status_code for _ in range(12)]
        assert found == [401] * 10 + [429] * 2
        refused = await http.get("/api/runs", headers=BEARER)
        assert refused.status_code == 429  # else the answer would reveal the right one
        await asyncio.sleep(int(refused.headers["retry-after"]))
        assert (await http.get("/api/runs", headers=BEARER)).status_code == 200
        found = [(await http.post(STOP, headers=BEARER)).status_code for _ in range(25)]
        assert found == [200] * 20 + [429] * 5


def test_rates_are_of_each_client_and_bounded() -> None:
    rates = Rates(burst=1, secs=3600, most_clients=10)
    for number in range(100):
        rates.take(str(number))
    assert len(rates) == 10


@pytest.mark.asyncio
async def test_every_answer_has_the_headers() -> None:
    async with client(app()) as http:
        for path in ("/", "/api/runs", "/nothing", "/healthz"):
            headers = (await http.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
        assert (await http.get("/api/runs")).headers["cache-control"] == "no-store"


@pytest.mark.asyncio
async def test_the_files_of_the_page_have_types_and_tags() -> None:
    async with client(app()) as http:
        for name, kind in {
            "": "text/html",
            "page.css": "text/css",
            "main.js": "text/javascript",
        }.items():
            answer = await http.get(f"/{name}")
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
            tag = {"if-none-match": f'"x", {answer.headers["etag"]}'}
            again = await http.get(f"/{name}", headers=tag)
            assert (again.status_code, again.content) == (304, b"")
        assert "unsafe-inline" not in (await http.get("/")).text


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("a.localhost", False),
    ],
)
def test_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own


SECRET = "what must stay secret"
PIECES = st.sampled_from(
    ["..", ".", "/", "%2e%2e", "%2f", "..%2f", "%00", "\x00", "\\", "secret", "logs", "a", "api",
     "runs", "page", "%252e%252e", "~", "//", "...", "index.html", "\u2025", "etc/passwd", "C:"]
)  # fmt: skip


def test_no_path_leads_out_of_the_log_directory(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text(SECRET)
    (logs / "a" / "checkpoint").write_text("{}")
    for target in (tmp_path / "secret", tmp_path):
        for name in ("linked.json", "events.out.tfevents.1", "checkpoint2", "x.safetensors"):
            link = logs / "a" / (name if target.is_file() else f"folder-{name}")
            os.symlink(target, link)
    os.symlink(tmp_path, logs / "outside")

    @settings(max_examples=60)
    @given(
        st.lists(PIECES, min_size=1, max_size=6), st.sampled_from(["", "/api/runs/", "/api/runs/a/"])
    )
    def try_path(pieces: list[str], start: str) -> None:
        path = start + "".join(pieces)

        async def ask() -> None:
            app = am.monitor.create_app(logs)
            await answered(app, "/api/runs")  # finds the runs
            status, body = await answered(app, path if path.startswith("/") else f"/{path}")
            assert status in (200, 307, 400, 403, 404, 405), path
            assert SECRET.encode() not in body
            assert b"root:" not in body

        asyncio.run(ask())

    try_path()


@pytest.mark.asyncio
async def test_links_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "logs", tmp_path / "outside"
    for folder in (inside / "a", outside / "b"):
        async with am.summary.FileWriter(folder) as writer:
            writer.add_scalar("secret" if folder.name == "b" else "loss", 1.0, 1)
    os.symlink(outside, inside / "linked")
    event_file = next((outside / "b").iterdir())
    os.symlink(event_file, inside / "a" / "events.out.tfevents.9999999999.x")
    async with client(am.monitor.create_app(inside)) as http:
        assert [row["id"] for row in (await http.get("/api/runs")).json()["runs"]] == ["a"]
        tags = (await http.get("/api/runs/a/scalars")).json()["tags"]
    assert [tag["tag"] for tag in tags] == ["loss"]


@pytest.mark.asyncio
@pytest.mark.parametrize("is_async", [False, True])
async def test_service_that_mounts_the_monitor_decides(is_async: bool) -> None:
    def check(request: Any) -> bool:
        return bool(request.cookies.get("user") == "ada")

    async def check_later(request: Any) -> bool:
        await asyncio.sleep(0)
        return check(request)

    run = ScriptedRun()
    mounted = am.monitor.create_app(run, authenticate=check_later if is_async else check)
    ada = {"cookie": "user=ada"}
    async with client(mounted, "203.0.113.9", base_url="https://example.org") as http:
        for path in ("/", "/main.js", *PRIVATE):
            refused = await http.get(path, headers=BEARER)
            assert (refused.status_code, "Log in to the service" in refused.text) == (401, True)
        assert (await http.get("/api/runs", headers=ada)).status_code == 200
        foreign = {**ada, "origin": "https://evil.example"}
        assert (await http.post(STOP, headers=foreign)).status_code == 403
        assert (await http.post(STOP, headers=ada)).status_code == 200
    assert run.asked == [("stop", None)]
    with pytest.raises(ValueError, match="a token or authenticate, not both"):
        am.monitor.create_app(run, token=TOKEN, authenticate=check)
