from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cassieq_spark.console.access import Access, hosts_of, is_loopback, own_path
from cassieq_spark.store.memory import MemoryStore
from tests.unit.console.visitor import BASE, Visitor, forms_of, visiting, words_of

KEY = "the-admin-key-of-a-gateway"
EVIL = "http://evil.example"
PATHS = ["/", "/login", "/nope", "/queues/nope", "/static/console.css", "/repair"]


@pytest.fixture
def guarded(store: MemoryStore) -> Iterator[Visitor]:
    """Somebody at a console that asks for a key."""
    with visiting(store, admin_key=KEY, allow_changes=True) as visitor:
        visitor.look()
        yield visitor


def log_in(visitor: Visitor, to: str = "") -> str:
    answer = visitor.get(f"/login?to={to}")
    done = visitor.submit(answer.text, "/login", key=KEY)
    assert done.status_code == 303, done.text
    return done.headers["location"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_a_browser_from_what_it_should_not_do(visitor: Visitor, path: str):
    headers = visitor.get(path).headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    is_static = path.startswith("/static")
    assert headers["cache-control"] == (
        "public, max-age=31536000, immutable" if is_static else "no-store"
    )


def test_without_a_key_only_its_own_names_are_answered(store: MemoryStore):
    with visiting(store, hosts=hosts_of("127.0.0.1", 8081)) as visitor:
        visitor.look()
        assert visitor.get("/").status_code == 200
        assert visitor.get("/", host="localhost:8081").status_code == 200
        for host in ("evil.example:8081", "evil.example", "127.0.0.1:8082", ""):
            answer = visitor.get("/queues/orders/messages", host=host)
            assert answer.status_code == 400
            assert "key-1" not in answer.text
        assert visitor.get("/nope", host="evil.example").status_code == 400


@pytest.mark.parametrize("path", ["/", "/queues/orders", "/queues/orders/messages/0/1/value"])
def test_who_has_no_session_is_sent_to_the_log_in_and_then_back(guarded: Visitor, path: str):
    asked = guarded.get(path)

    assert asked.status_code == 303
    assert asked.headers["location"].startswith("/login?to=")
    assert log_in(guarded, asked.headers["location"].partition("to=")[2]) == path
    assert guarded.get(path).status_code == 200


def test_before_the_log_in_nothing_is_told(guarded: Visitor):
    for answer in (
        guarded.get("/login"),
        guarded.get("/nope"),
        guarded.get("/", **{"x-refresh": "1"}),
    ):
        assert "orders" not in answer.text
        assert "production" not in answer.text
    assert guarded.get("/", **{"x-refresh": "1"}).status_code == 401


def test_a_wrong_key_is_refused_and_logged(guarded: Visitor, caplog: pytest.LogCaptureFixture):
    answer = guarded.get("/login")
    for key in ("wrong", "", KEY + "x", "ä"):
        refused = guarded.submit(answer.text, "/login", key=key)

        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
        assert guarded.get("/").status_code == 303
    assert {record.action for record in caplog.records} == {"console.login_refused"}  # type: ignore[attr-defined]
    assert "wrong" not in caplog.text


def test_the_cookie_of_a_session_is_out_of_reach_of_scripts_and_other_sites(guarded: Visitor):
    done = guarded.submit(guarded.get("/login").text, "/login", key=KEY)

    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert KEY not in cookie


def test_over_tls_the_cookie_is_sent_over_tls_only(store: MemoryStore):
    with visiting(store, admin_key=KEY) as visitor:
        done = visitor.post(
            "https://console.example/login", {"key": KEY}, origin="https://console.example"
        )

    assert "Secure" in done.headers["set-cookie"]


def test_a_session_that_was_tampered_with_or_is_over_is_none(guarded: Visitor):
    log_in(guarded)
    (name, value), *_ = [
        (each.name, each.value) for each in guarded._client.cookies.jar if each.value
    ]
    guarded._client.cookies.clear()
    changed = [value[:-1], value + "x", "." + value, "a.99999999999." + value[-43:], "x", ""]
    for each in changed:
        assert guarded.get("/", cookie=f"{name}={each}").status_code == 303
    assert guarded.get("/", cookie=f"{name}={value}").status_code == 200
    guarded.console.access._clock = lambda: time.time() + 13 * 3600
    assert guarded.get("/", cookie=f"{name}={value}").status_code == 303


def test_the_session_of_one_gateway_holds_at_another_with_the_same_key(store: MemoryStore):
    with visiting(store, admin_key=KEY) as one, visiting(store, admin_key=KEY) as other:
        log_in(one)
        cookie = "; ".join(f"{each.name}={each.value}" for each in one._client.cookies.jar)

        assert other.get("/repair", cookie=cookie).status_code == 200
    with visiting(store, admin_key=KEY + "2") as third:
        assert third.get("/repair", cookie=cookie).status_code == 303


def test_logging_out_ends_the_session(guarded: Visitor):
    log_in(guarded)

    guarded.submit(guarded.page("/"), "/logout")

    assert guarded.get("/").status_code == 303


def test_a_program_with_the_key_changes_nothing_even_with_the_token_of_a_page(guarded: Visitor):
    key = {"authorization": f"Key {KEY}"}
    page = guarded.get("/queues/orders", **key)
    (pause,) = [form for form in forms_of(page.text) if form.action.endswith("/change/pause")]

    refused = guarded.post(pause.action, pause.fields, **key)

    assert refused.status_code == 403
    assert "a program with the key only looks" in words_of(refused.text)


def test_a_program_looks_with_the_key_in_a_header(guarded: Visitor):
    assert guarded.get("/", authorization=f"Key {KEY}").status_code == 200
    assert guarded.get("/", authorization="Key nope").status_code == 303
    assert guarded.get("/", authorization=f"Bearer {KEY}").status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": BASE + ".evil.example"},
        {"origin": "http://127.0.0.1:8082"},
    ],
)
@pytest.mark.parametrize("path", ["/queues/orders/change/pause", "/login", "/logout", "/theme"])
def test_a_form_of_another_site_is_refused(operator: Visitor, path: str, headers: dict[str, str]):
    token = forms_of(operator.page("/queues/orders"))[-1].fields["token"]

    answer = operator.post(path, {"token": token, "theme": "dark"}, **headers)

    assert answer.status_code == 403
    assert "not from a page of this console" in words_of(answer.text)
    assert "set-cookie" not in answer.headers


def test_a_browser_that_tells_no_origin_tells_the_site(operator: Visitor):
    token = forms_of(operator.page("/queues/orders"))[-1].fields["token"]
    content = {"content-type": "application/x-www-form-urlencoded"}

    def status(site: str) -> int:
        headers = content | {"sec-fetch-site": site}
        answer = operator._ask(
            "POST", "/queues/orders/change/pause", content=f"token={token}", headers=headers
        )
        return int(answer.status_code)

    assert status("same-origin") == 200
    assert {status("cross-site"), status("same-site"), status("none")} == {403}


def test_a_form_without_the_token_of_its_session_is_refused(operator: Visitor, store: MemoryStore):
    operator.page("/")
    with visiting(store, allow_changes=True) as other:
        theirs = forms_of(other.page("/queues/orders"))[-1].fields["token"]
    for token in ("", "x", theirs):
        answer = operator.post("/queues/orders/change/pause", {"token": token})

        assert answer.status_code == 403
        assert "not one of your session" in words_of(answer.text)


def test_a_form_that_is_too_large_or_none_is_refused(operator: Visitor):
    operator.page("/")
    content = {"content-type": "application/x-www-form-urlencoded", "origin": BASE}
    for body, status in (
        (b"a=" + b"x" * 600_000, 413),
        (b"\xff=1", 400),
        (b"&".join(b"a%d=1" % number for number in range(200)), 400),
    ):
        answer = operator._ask(
            "POST", "/queues/orders/change/pause", content=body, headers=content
        )
        assert answer.status_code == status


@pytest.mark.parametrize("path", ["/login", "/theme"])
def test_a_stranger_sends_a_small_form_only(visitor: Visitor, path: str):
    answer = visitor.post(path, {"key": "x" * 8192})

    assert answer.status_code == 413
    assert "a form has at most 8192 bytes" in words_of(answer.text)


@pytest.mark.parametrize(
    "given",
    [
        "//evil.example",
        "/\\evil.example",
        "http://evil.example/",
        "javascript:alert(1)",
        "/ok\r\nx: y",
        "",
        "/\u202e",
    ],
)
def test_nobody_is_sent_to_another_site(given: str):
    assert own_path(given, "") == "/"
    assert (
        own_path("/console" + given if given.startswith("\\") else given, "/console")
        == "/console/"
    )


def test_a_theme_is_remembered(visitor: Visitor):
    assert 'data-theme="auto"' in visitor.page("/repair")

    answer = visitor.submit(visitor.page("/repair"), "/theme", theme="dark")

    assert answer.headers["location"] == "/repair"
    assert 'data-theme="dark"' in visitor.page("/repair")
    visitor.post("/theme", {"theme": '"><script>', "back": "//evil.example"})
    assert 'data-theme="dark"' in visitor.page("/repair")


def test_what_was_done_is_said_once_and_cannot_be_made_up(operator: Visitor):
    answer = operator.submit(operator.page("/queues/orders"), "/change/pause")
    done = operator.confirm(answer)

    assert "Queue orders is paused." in words_of(done.text)
    assert "Queue orders is paused." not in words_of(operator.page("/queues/orders"))
    forged = operator.get("/", cookie="cassieq-console-said=SGVsbG8=.x")
    assert "Hello" not in forged.text


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("console.example", False),
    ],
)
def test_loopback_is_what_other_machines_do_not_reach(host: str, is_so: bool):
    assert is_loopback(host) is is_so


def test_a_default_port_is_left_out_of_a_name():
    assert "localhost" in hosts_of("127.0.0.1", 80)
    assert "localhost" not in hosts_of("127.0.0.1", 8081)
    assert "[::1]:8081" in hosts_of("::1", 8081)


def test_without_a_key_no_key_is_right():
    assert not Access(None).is_key("")
    assert not Access(None).is_key("None")


@pytest.mark.parametrize("path", ["/login", "/logout", "/theme"])
@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//", "\\\\x"])
def test_an_origin_that_is_no_url_is_another_one(guarded: Visitor, path: str, origin: str):
    assert guarded.post(path, {"key": KEY}, origin=origin).status_code == 403


@pytest.mark.parametrize("path", ["/login/", "/queues/orders/", "/repair/", "//evil.example/"])
def test_nobody_is_sent_to_the_host_that_a_request_names(guarded: Visitor, path: str):
    answer = guarded.get(path, host="127.0.0.1:8081")

    assert "evil.example" not in answer.headers.get("location", "").partition("?")[0]
    assert not answer.headers.get("location", "").startswith("http")


def test_strangers_do_not_let_the_console_read_cassandra(guarded: Visitor):
    begun: list[bool] = []
    guarded.console.watcher.start = lambda: begun.append(True)  # type: ignore[method-assign]

    for path in PATHS:
        guarded.get(path)
    assert begun == []

    log_in(guarded)
    guarded.get("/")
    assert begun
