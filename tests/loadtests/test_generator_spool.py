"""What a trial writes down while it runs says the same as its records, however early it is cut off."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtests.evidence.records import RequestRecord
from loadtests.generator import Endpoint, run_trial
from loadtests.generator.said import Clean, Secrets
from loadtests.generator.several import run_several
from loadtests.generator.spool import NO_REASON, completed_by, told_by
from loadtests.generator.unserved import unserved
from loadtests.traffic.planned import PlannedRequest

Plan = Callable[..., list[PlannedRequest]]
TEXTS = ["plain-answer", "http-400-json", "token-ids-without-usage", "reset-mid-stream", "never-answers"]
LIMITS: dict[str, Any] = {"level": "x", "window_s": 1, "drain_s": 3}


def unheard(plan: list[PlannedRequest]) -> list[RequestRecord]:
    return unserved(plan, model="hostile", level="x", reason="unknown")


def comparable(record: RequestRecord) -> RequestRecord:
    """Without what no spool holds."""
    unheard_of = ["prompt_tokens", "rounds", "draft_tokens", "accepted_tokens", "accepted_histogram", "output_sha256"]
    unheard_of += ["server_queue_ms", "server_prefill_ms", "server_decode_ms", "due_ns", "error"]
    nothing: dict[str, Any] = dict.fromkeys(unheard_of)
    return replace(record, **nothing)


async def test_a_spool_holds_what_has_ended(server: Any, planned: Plan, tmp_path: Path) -> None:
    plan, path = planned(TEXTS), tmp_path / "spool"
    trial = await run_trial(plan, Endpoint(server.base_url, "hostile"), spool=str(path), **LIMITS)
    known, started_at = told_by([path])
    assert started_at == trial.started_at
    # The last one was still open: only the end of the drain gave it a status.
    assert sorted(known) == [one.request_id for one in plan[:-1]]
    records = completed_by(unheard(plan), known)
    assert [comparable(one) for one in records[:-1]] == [comparable(one) for one in trial.records[:-1]]
    assert [one.error for one in records] == [None, NO_REASON, None, NO_REASON, "unknown"]
    assert "too long" not in path.read_text()


async def test_no_reason_is_read_while_requests_are_under_way(
    server: Any, planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked through for the whole prompt, which would keep the loop waiting; the spool holds none."""
    path, read_after = tmp_path / "spool", list[int]()
    reason = Secrets.reason

    def noted(secrets: Secrets, heard: str, prompts: Iterable[str] = ()) -> Clean:
        read_after.append(len(told_by([path])[0]))
        return reason(secrets, heard, prompts)

    monkeypatch.setattr(Secrets, "reason", noted)
    plan = planned(["http-400-json", "reset-mid-stream"])
    await run_trial(plan, Endpoint(server.base_url, "hostile"), spool=str(path), **LIMITS)
    assert read_after == [2, 2]


async def test_every_process_has_a_spool(server: Any, planned: Plan, tmp_path: Path) -> None:
    plan, path = planned(TEXTS[:4]), tmp_path / "spool"
    endpoint = Endpoint(server.base_url, "hostile")
    trial = await run_several(plan, endpoint, processes=2, spool=str(path), **LIMITS)
    records = completed_by(unheard(plan), told_by([tmp_path / "spool.0", tmp_path / "spool.1"])[0])
    assert [comparable(one) for one in records] == [comparable(one) for one in trial.records]


@pytest.mark.parametrize("cut", range(0, 130, 7))
def test_a_spool_that_was_cut_off_tells_what_is_whole(planned: Plan, tmp_path: Path, cut: int) -> None:
    lines = [json.dumps({"started_at": 5}), json.dumps(["r-00000", "completed", 1, 2, 3, 4, 9, 9, "stop", None])]
    lines += [json.dumps(["r-00001", "failed", 1, None, None, 4, None, 0, None, None])]
    path = tmp_path / "spool"
    content = "".join(f"{line}\n" for line in lines)
    path.write_text(content[: len(content) - cut])
    known, started_at = told_by([path])
    whole = content[: len(content) - cut].split("\n")
    assert (started_at == 5) == (lines[0] in whole)
    assert set(known) == {name for name, line in zip(("r-00000", "r-00001"), lines[1:], strict=True) if line in whole}
    records = completed_by(unheard(planned(["a", "b"])), known)
    assert [one.status for one in records] == ["completed" if lines[1] in whole else "failed", "failed"]
