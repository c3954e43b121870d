"""``draftproof login``, ``submit``, ``watch`` and ``check``, against a server that runs."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from django.utils import timezone

from config.cli import main
from decisions.client import commands, credentials
from decisions.client.credentials import Credentials, Unusable, checked_url, is_plain, keep
from decisions.models import BriefRevision, Release
from tests.conftest import PASSWORD
from tests.support.bundles import sign
from tests.support.house import written
from tests.support.reviewed import Reviewed, build_reviewed
from tests.support.tokens import secret_of

SECRET = "dp_" + "x" * 43


@pytest.fixture(autouse=True)
def own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "home" / "credentials.json"
    monkeypatch.setattr(commands, "default_file", lambda: path)
    return path


def run(*arguments: str, environment: dict[str, str] | None = None, stdin: str = "") -> Result:
    wanted = {"DRAFTPROOF_URL": None, "DRAFTPROOF_TOKEN": None, **(environment or {})}
    return CliRunner(env=wanted).invoke(main, list(arguments), input=stdin)


@contextmanager
def server(
    answer: Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]],
) -> Iterator[tuple[str, list[Any]]]:
    """(its address, the headers of each request)"""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers))
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    found = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}", seen
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


def environment(url: str, secret: str = SECRET) -> dict[str, str]:
    return {"DRAFTPROOF_URL": url, "DRAFTPROOF_TOKEN": secret}


class TestCredentials:
    def test_login_keeps_what_works_where_nobody_else_reads_it(self, own_file: Path) -> None:
        with server(lambda _: (200, {}, b'{"username": "erik"}')) as (url, seen):
            ran = run("login", f"{url}/", "--token-stdin", stdin=f"{SECRET}\n")
        assert (ran.exit_code, json.loads(ran.stdout)) == (0, {"username": "erik"})
        assert SECRET not in ran.output
        assert stat.S_IMODE(own_file.stat().st_mode) == 0o600
        assert json.loads(own_file.read_text()) == {"url": url, "token": SECRET}
        assert [(path, headers["Authorization"]) for path, headers in seen] == [("/api/v1/token", f"Bearer {SECRET}")]
        assert list(own_file.parent.iterdir()) == [own_file]

    def test_what_is_refused_is_not_kept(self, own_file: Path) -> None:
        with server(lambda _: (401, {}, b'{"detail": "send a token that is valid"}')) as (url, _):
            ran = run("login", url, "--token-stdin", stdin=SECRET)
        assert (ran.exit_code, ran.stdout, "send a token that is valid" in ran.stderr) == (2, "", True)
        assert not own_file.exists()

    def test_a_redirect_is_refused_and_the_token_goes_nowhere_else(self) -> None:
        with (
            server(lambda _: (200, {}, b"{}")) as (elsewhere, stolen),
            server(lambda _: (302, {"Location": elsewhere}, b"")) as (url, _),
        ):
            ran = run("check", "--route", "chat", environment=environment(url))
        assert (ran.exit_code, stolen) == (3, [])
        assert f"leads elsewhere ({elsewhere})" in ran.stderr

    @pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"[" * 100_000])
    @pytest.mark.parametrize("status", [200, 404, 500])
    def test_what_is_no_answer_of_the_api(self, body: bytes, status: int) -> None:
        with server(lambda _: (status, {}, body)) as (url, _):
            ran = run("watch", "1", environment=environment(url))
        assert (ran.exit_code, SECRET in ran.output) == (2, False)
        assert f"answered {status}, and that is no answer of Draftproof's API" in ran.stderr

    def test_nobody_answers(self) -> None:
        ran = run("check", "--route", "chat", environment=environment("http://127.0.0.1:1"))
        assert (ran.exit_code, "didn't answer" in ran.stderr, SECRET in ran.output) == (3, True, False)

    def test_logged_in_nowhere(self) -> None:
        ran = run("watch", "1")
        assert (ran.exit_code, "run draftproof login, or set DRAFTPROOF_URL" in ran.stderr) == (2, True)

    def test_a_file_that_others_may_read_is_refused(self, own_file: Path) -> None:
        keep(Credentials("http://127.0.0.1:1", SECRET), own_file)
        own_file.chmod(0o640)
        ran = run("watch", "1")
        assert (ran.exit_code, "others may read it" in ran.stderr) == (2, True)
        own_file.write_text("{")
        assert "can't be read: run draftproof login again" in run("watch", "1").stderr

    def test_a_token_is_sent_to_its_own_server_alone(self, own_file: Path) -> None:
        keep(Credentials("https://here.example", SECRET), own_file)
        ran = run("watch", "1", environment={"DRAFTPROOF_URL": "https://there.example"})
        assert (ran.exit_code, "is for https://here.example" in ran.stderr) == (2, True)
        ran = run("watch", "1", environment={"DRAFTPROOF_TOKEN": SECRET})
        assert "DRAFTPROOF_TOKEN is set without DRAFTPROOF_URL" in ran.stderr

    def test_addresses(self) -> None:
        assert checked_url(" https://a.example/draftproof/ ") == "https://a.example/draftproof"
        for text in (
            "a.example",
            "ftp://a.example",
            "https://",
            "https://u:p@a.example",
            "https://a.example?b",
            "http://[",
        ):
            with pytest.raises(Unusable, match="is no address of a server"):
                checked_url(text)
        assert [is_plain(one) for one in ("http://a.example", "https://a.example", "http://127.0.0.1:8000")] == [
            *(True, False, False)
        ]
        assert SECRET not in repr(Credentials("https://a.example", SECRET))

    def test_tokens_that_are_none(self) -> None:
        for text in ("", "a b", "ä", "a\nb"):
            with pytest.raises(Unusable, match="that is no token"):
                credentials.checked_token(text)


@pytest.fixture
def reviewed(transactional_db: None) -> Reviewed:
    return build_reviewed(PASSWORD)


@pytest.fixture
def here(reviewed: Reviewed, live_server: Any) -> dict[str, str]:
    return environment(live_server.url, secret_of(reviewed.people["engineer"]))


def test_check_follows_the_route_from_nothing_to_stale(reviewed: Reviewed, here: dict[str, str]) -> None:
    def checked(*more: str) -> tuple[int, str]:
        ran = run("check", "--route", "chat", *more, environment=here)
        return ran.exit_code, json.loads(ran.stdout)["standing"]

    assert checked() == (1, "none")
    sign(reviewed.revision, reviewed.people["owner"], PASSWORD)
    assert checked() == (0, "in-force")
    released = Release.objects.get().configuration.digest
    assert checked("--environment", "production", "--configuration", released) == (0, "in-force")
    assert checked("--environment", "staging") == (1, "in-force")
    assert checked("--configuration", "0" * 64) == (1, "in-force")
    Release.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert checked() == (2, "stale")
    assert run("check", "--route", "nowhere", environment=here).exit_code == 3
    assert run("check", environment=here).exit_code == 3
    assert run("check", "--route", "chat", environment=here | {"DRAFTPROOF_TOKEN": SECRET}).exit_code == 3


def test_submit_then_watch(reviewed: Reviewed, here: dict[str, str], tmp_path: Path) -> None:
    first = written(reviewed.route, reviewed.people["engineer"], "An own drafter")
    file = tmp_path / "brief.yaml"
    file.write_text(first.source)
    ran = run("submit", str(file), "--start", "--key", "this-act", environment=here)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["state"], told["title"]) == ("measuring", "An own drafter")
    assert told["page"] == f"{here['DRAFTPROOF_URL']}/briefs/{told['brief']}/1/"
    again = run("submit", str(file), "--start", "--key", "this-act", environment=here)
    assert (again.exit_code, json.loads(again.stdout)) == (0, told)

    replaced = run("submit", str(file), "--replace", str(told["brief"]), environment=here)
    assert (replaced.exit_code, "cancel or withdraw it" in replaced.stderr) == (1, True)
    file.write_text(first.source.replace("An own drafter", "A better one"))
    replaced = run("submit", str(file), "--replace", str(first.brief_id), "--freeze", environment=here)
    assert (replaced.exit_code, json.loads(replaced.stdout)["state"]) == (0, "frozen")
    assert BriefRevision.objects.get(pk=first.pk).title == "A better one"

    file.write_text(first.source.replace("route: chat", "route: chut"))
    refused = run("submit", str(file), environment=here)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[1].endswith(", route: there is no route chut")
    assert run("submit", str(tmp_path / "none.yaml"), environment=here).exit_code == 2

    BriefRevision.objects.filter(brief=told["brief"]).update(halted="an engine is missing")
    watched = run("watch", str(told["brief"]), environment=here)
    assert (watched.exit_code, watched.stderr.splitlines()[-1]) == (5, "stopped: an engine is missing")
    watched = run("watch", str(reviewed.revision.brief_id), environment=here)
    assert (watched.exit_code, json.loads(watched.stdout)["verdict"]) == (0, "PASS")


def test_what_a_token_may_not_is_said(reviewed: Reviewed, live_server: Any, tmp_path: Path) -> None:
    (tmp_path / "brief.yaml").write_text(reviewed.revision.source)
    for who, scopes, said in (
        ("engineer", ["read"], "This token has no scope submit"),
        ("owner", ["submit"], "Only someone in the group engineer can write a brief."),
    ):
        here = environment(live_server.url, secret_of(reviewed.people[who], scopes))
        ran = run("submit", str(tmp_path / "brief.yaml"), environment=here)
        assert (ran.exit_code, said in ran.stderr) == (1, True)


def test_watch_says_each_change_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stage = {"name": "tuning", "state": "now", "done": 1, "total": 5}
    going = {"state": "measuring", "halted": "", "verdict": None, "stages": [stage], "seconds_left": 600.0}
    further = {**going, "stages": [{**stage, "done": 2}], "seconds_left": 540.0}
    over = {**going, "state": "in-review", "verdict": "FAIL", "stages": []}
    answers, waits = iter([going, going, further, over]), list[float]()
    monkeypatch.setattr("decisions.client.commands.time.sleep", waits.append)
    assert commands.followed(lambda: next(answers), 10.0) == over
    assert capsys.readouterr().err.splitlines() == [
        "tuning: 1 of 5 boots, about 10 min left",
        "tuning: 2 of 5 boots, about 9 min left",
        "in-review: FAIL",
    ]
    assert waits == [10.0] * 3


def test_watch_waits_for_a_server_that_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def ask() -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise Unusable("the server didn't answer")
        return {"state": "in-review"}

    monkeypatch.setattr("decisions.client.commands.time.sleep", lambda _: None)
    assert commands.asked_patiently(ask, 1.0) == {"state": "in-review"}
    tries.clear()
    monkeypatch.setattr(commands, "ASKED_AGAIN", 2)
    with pytest.raises(Unusable, match="didn't answer"):
        commands.asked_patiently(ask, 1.0)
    assert len(tries) == 2
