from __future__ import annotations

import time
import warnings
from typing import Any

import pandastack
import pytest
import requests
from pandastack import AuthError, BadRequestError, NotFoundError, Sandbox

from conftest import API


def raw(client: Any, method: str, path: str, **more: Any) -> requests.Response:
    return client.session.request(method, API.rstrip("/") + "/v1" + path, timeout=30, allow_redirects=False, **more)


def test_create(client: Any, box: Sandbox, run_id: str) -> None:
    assert box.status == "running" and box.template == "code-interpreter"
    assert box.metadata["run_id"] == run_id and not box.persistent
    assert box.cpu >= 1 and box.memory_mb >= 1 and box.boot_ms is not None and box.boot_ms >= 0 and box.boot_mode
    assert box.id.isalnum() and box.id == box.id.lower() and 24 <= len(box.id) <= 40
    assert not box.guest_ip and box.created_at


@pytest.mark.parametrize("template", ["code-interpreter", "base", "ubuntu-24.04"])
def test_templates_by_name(client: Any, template: str) -> None:
    with Sandbox.create(template=template, ttl_seconds=60) as box:
        assert box.template == template
        seen = raw(client, "GET", f"/sandboxes/{box.id}").json()
        assert seen["template_resolved"]  # an alias says what it stands for
        assert box.exec("echo $((40+2))").stdout == "42\n"


def test_values_as_callers_type_them(client: Any) -> None:
    with client.sandboxes.create(ttl_seconds=60.0, metadata={"n": 1, "run_id": "x"}) as box:
        assert box.metadata["n"] == "1"


def test_dropped_sizes_warn_and_work(client: Any) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        box = Sandbox.create(cpu=1, memory_mb=512, ttl_seconds=60)
    box.kill()
    assert any(w.category is DeprecationWarning for w in seen)


def test_list_and_get(client: Any, box: Sandbox) -> None:
    assert box.id in [b.id for b in Sandbox.list()]
    again = Sandbox.get(box.id)
    assert (again.id, again.template, again.metadata) == (box.id, box.template, box.metadata)
    assert box.refresh() is box and box.status == "running"


def test_unknown_ids(client: Any, box: Sandbox) -> None:
    began = time.monotonic()
    with pytest.raises(NotFoundError):
        client.sandboxes.get("s" + "0" * 32)
    assert time.monotonic() - began >= 0.2  # the SDK asks twice; both answers are the same
    with pytest.raises(NotFoundError):
        client.sandboxes.get("")
    with pytest.raises(NotFoundError):
        client.sandboxes.delete("s" + "0" * 32)
    with pytest.raises((NotFoundError, BadRequestError)):
        client.sandboxes.get("no/such")
    with pytest.raises(NotFoundError):
        Sandbox.create(template="no-such-template", ttl_seconds=60)


def test_no_redirects(client: Any, box: Sandbox) -> None:
    for path in ("/sandboxes/", f"/sandboxes/{box.id}/", f"//sandboxes/{box.id}", "/sandboxes/../me"):
        assert raw(client, "GET", path).status_code in (200, 400, 404)


def test_kill_twice(client: Any) -> None:
    box = Sandbox.create(ttl_seconds=60)
    box.kill()
    box.kill()
    assert box.id not in [b.id for b in Sandbox.list()]
    with pytest.raises(BadRequestError):
        box.exec("true")
    with pytest.raises(BadRequestError):
        box.filesystem.write("/tmp/x", "x")


def test_context_ends_it_after_an_error_too(client: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        with Sandbox.create(ttl_seconds=60) as box:
            1 / 0
    assert box.id not in [b.id for b in Sandbox.list()]


def test_the_ttl_ends_it_and_leaving_is_quiet(client: Any) -> None:
    with Sandbox.create(ttl_seconds=2) as box:
        until = time.monotonic() + 30
        while box.id in [b.id for b in Sandbox.list()]:
            assert time.monotonic() < until
            time.sleep(0.2)
    assert raw(client, "GET", f"/sandboxes/{box.id}").json()["ending"] == "ttl"


def test_lifecycle(client: Any, fresh: Sandbox) -> None:
    life = fresh.lifecycle()
    assert life["ttl_seconds"] == 300 and life["persistent"] is False and life["idle_seconds"] >= 0
    assert fresh.set_ttl(400)["ttl_seconds"] == 400
    with pytest.raises(BadRequestError):
        fresh.set_ttl(-1)
    assert fresh.set_persistent(True)["persistent"] is True
    assert Sandbox.get(fresh.id).persistent
    assert [b.persistent for b in Sandbox.list() if b.id == fresh.id] == [True]
    assert fresh.set_persistent(False)["persistent"] is False


def test_persistent_outlives_its_block(client: Any) -> None:
    with Sandbox.create(persistent=True, ttl_seconds=120) as box:
        assert box.persistent
    assert Sandbox.get(box.id).status == "running"
    box.kill()


def test_pause(client: Any, fresh: Sandbox) -> None:
    fresh.exec("i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.05; done >/dev/null 2>&1 &")
    fresh.pause()
    assert fresh.refresh().status == "paused"
    with pytest.raises(BadRequestError) as refused:
        fresh.exec("true")
    assert "paused" in str(refused.value)
    fresh.pause()  # twice is fine
    fresh.resume()
    assert fresh.refresh().status == "running"
    assert fresh.exec("cat /tmp/n").exit_code == 0


def test_bad_requests(client: Any, box: Sandbox) -> None:
    with pytest.raises(BadRequestError):
        client.sandboxes.create(ttl_seconds=-1)
    with pytest.raises(BadRequestError):
        box.exec("")
    answer = raw(client, "POST", "/sandboxes", json={"template": "base", "mounts": ["/"]})
    assert answer.status_code == 400 and isinstance(answer.json()["error"], str) and answer.json()["code"]
    assert raw(client, "POST", "/sandboxes", data=b"{", headers={"Content-Type": "application/json"}).status_code == 400


def test_tokens(client: Any, box: Sandbox) -> None:
    assert client.me()["auth_method"]
    try:
        made = client.tokens.create("compat", expires_in_days=1)
    except BadRequestError as refused:
        pytest.skip(f"PANDASTACK_API_KEY is no admin token: {refused}")
    assert made.token and made.prefix and made.token.startswith(made.prefix) and made.name == "compat"
    assert made.prefix in [t.prefix for t in client.tokens.list()]
    other = pandastack.Client(api_key=made.token)
    assert other.sandboxes.get(box.id).id == box.id
    with pytest.raises(BadRequestError):  # an agent makes no tokens
        other.tokens.create("more")
    client.tokens.revoke(made.prefix)
    with pytest.raises(AuthError):
        other.sandboxes.list()


def test_auth(client: Any) -> None:
    for key in ("wrong", "e2b_" + "0" * 40):
        with pytest.raises(AuthError):
            pandastack.Client(api_key=key).sandboxes.list()
    with pytest.raises(AuthError):
        pandastack.Client(api_key="").sandboxes.list()
    with pytest.raises(pandastack.APIConnectionError):
        pandastack.Client(api_url="http://127.0.0.1:1").sandboxes.list()


def test_templates(client: Any) -> None:
    names = [t.name for t in client.templates.list()]
    assert names and "code-interpreter" in names
    assert client.templates.get("code-interpreter").name == "code-interpreter"
    with pytest.raises(NotFoundError):
        client.templates.get("no-such-template")


def test_base_with_v1_and_slash(client: Any, box: Sandbox) -> None:
    for url in (API.rstrip("/") + "/", API.rstrip("/") + "/v1"):
        assert pandastack.Client(api_url=url).sandboxes.get(box.id).id == box.id


def test_ports(client: Any, fresh: Sandbox) -> None:
    assert fresh.preview_urls() == {}
    fresh.exec("cd /tmp && echo served > page && nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &")
    until = time.monotonic() + 20
    while 8123 not in fresh.preview_urls():
        assert time.monotonic() < until
        time.sleep(0.2)
    assert fresh.preview_url(8123).startswith(f"https://8123-{fresh.id}.")
    got = raw(client, "GET", f"/sandboxes/{fresh.id}/proxy/8123/page")
    assert (got.status_code, got.text) == (200, "served\n")
