"""``draftproof rerun`` of a manifest that somebody changed: refused with its field, or run; never a fault."""

import json
import math
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.cli import main
from loadtests.commands.replay import Unusable
from loadtests.commands.rerun import manifest_of, settled
from loadtests.evidence.manifest import manifest_content
from loadtests.generator import Reached, TrialRun
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import plan_content
from loadtests.traffic.rows import Row, part_digest

NOBODY = "http://127.0.0.1:1/v1"
HOST = {"name": "h", "system": "s", "processor": "p", "logical_cpus": 2, "memory_bytes": 1, "accelerators": []}
LEVEL = {"name": "constant", "arrival": {"process": "constant", "rate": 4.0}, "duration_s": 2.0, "drain_s": 1.0}
LEVEL |= {"deadlines": {"default": {"first_token_s": 1.0, "completion_s": 2.0}}, "warm_up_s": 0.5}


def row_of(number: int) -> Row:
    fields = {"id": f"row-{number}", "conversation": f"c-{number}", "arrival_s": number, "class": "chat"}
    return Row.model_validate(fields | {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 4})


ROWS = [row_of(number) for number in range(12)]
LEVEL_READ = Level.model_validate(LEVEL)
PLAN = plan_content(plan_level(list(enumerate(ROWS)), LEVEL_READ, seed=0, prefix="r"), LEVEL_READ)
MANIFEST: dict[str, Any] = {
    "schema": "draftproof.manifest/2",
    "evidence_class": "imported",
    "level": LEVEL_READ.model_dump(mode="json"),
    "base_url": NOBODY,
    "model": "m",
    "started_at": "2026-01-01T00:00:00.000000000Z",
    "window_s": 2.0,
    "drain_s": 1.0,
    "stopped": False,
    "digests": {"plan": sha256(PLAN).hexdigest(), "records": "0" * 64, "part": part_digest(ROWS)},
    "planned": 8,
    "statuses": {"completed": 8},
    "lag_ms": {"p50": 1.0, "p99": 2.0},
    "fingerprints": {"(none)": 8},
    "findings": ["a finding"],
    "seeds": {"arrivals": 0},
    "engine": {"models": ["m"], "asked": {"api": "chat", "stream": True, "token_ids": False}},
    "client": {"host": HOST, "python": "3.11", "packages": {"uvloop": None}, "command": ["draftproof"]},
}


def left(directory: Path, content: str) -> tuple[Path, Path]:
    """Manifest and rows of a trial in a directory."""
    (directory / "plan.json").write_bytes(PLAN)
    (directory / "manifest.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    (directory / "rows.jsonl").write_bytes(b"".join(row.content + b"\n" for row in ROWS))
    return directory / "manifest.json", directory / "rows.jsonl"


def rerun(directory: Path, content: str) -> Result:
    manifest, rows = left(directory, content)
    return CliRunner().invoke(main, ["rerun", str(manifest), "--rows", str(rows), "--out", str(directory / "out")])


def changed(*path: str, to: object) -> str:
    document = deepcopy(MANIFEST)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return json.dumps(document)


def test_as_it_was_left_it_is_run(tmp_path: Path) -> None:
    ran = rerun(tmp_path, json.dumps(MANIFEST))
    assert (ran.exit_code, "can't be reached (connection refused)" in ran.output) == (3, True), ran.output


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("engine", "asked", "api"), "responses", "engine.asked.api: Input should be 'chat' or 'completions'"),
        (("engine", "asked", "api"), None, "engine.asked.api: Input should be"),
        (("engine", "asked", "stream"), "yes", "engine.asked.stream: Input should be a valid boolean"),
        (("engine", "asked", "token_ids"), 1, "engine.asked.token_ids: Input should be a valid boolean"),
        (("engine", "asked", "logprobs"), True, "engine.asked.logprobs: Extra inputs are not permitted"),
        (("engine", "asked"), "chat", "engine.asked: Input should be"),
        (("engine", "asked"), 0, "engine.asked: Input should be"),
        (("drain_s",), -1, "drain_s is -1, and by its level it is 1"),
        (("drain_s",), 1e300, "drain_s is 1e+300, and by its level it is 1"),
        (("window_s",), -2.0, "window_s is -2, and by its level it is 2"),
        (("window_s",), math.nan, "window_s: NaN could not be written again"),
        (("window_s",), math.inf, "window_s: Infinity could not be written again"),
        (("window_s",), "2.0", "window_s: Input should be a valid number"),
        (("level", "drain_s"), -1, "level.drain_s: Input should be greater than or equal to 0"),
        (("level", "duration_s"), 1e9, "level.duration_s: Input should be less than or equal to 86400"),
        (("level", "duration_s"), "2.0", "level.duration_s: Input should be a valid number"),
        (("level", "arrival", "rate"), True, "level.arrival.rate: Input should be a valid number"),
        (("seeds", "arrivals"), 2**53, "seeds.arrivals: 9007199254740992 could not be written again"),
        (("planned",), 10**400, "planned: "),
        (("stopped",), "no", "stopped: Input should be a valid boolean"),
        (("model",), " ", "model is empty"),
        (("base_url",), "file:///etc/passwd", "the base URL must start with http:// or https://"),
        (("digests", "plan"), "0" * 63, "digests.plan: String should match pattern"),
        (
            ("engine",),
            {"x": [[[10**30]]]},
            "engine.x.0.0.0: 1000000000000000000000000000000 could not be written again",
        ),
    ],
)
def test_a_wild_value_is_refused_with_its_field(
    tmp_path: Path, path: tuple[str, ...], value: object, said: str
) -> None:
    ran = rerun(tmp_path, changed(*path, to=value))
    assert (ran.exit_code, said in ran.stderr) == (2, True), ran.output
    assert path[0] == "base_url" or "Give the manifest as the trial left it." in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["drain_s", "rate", "api", "schema"])
def test_of_two_fields_of_one_name_none_counts(tmp_path: Path, name: str) -> None:
    content = json.dumps(MANIFEST)
    at = content.index(f'"{name}"')
    end = min(found for sign in ",}" if (found := content.find(sign, at)) > 0)
    ran = rerun(tmp_path, f"{content[:at]}{content[at:end]}, {content[at:]}")
    assert (ran.exit_code, f"{name}: is there twice. Give the manifest as" in ran.stderr) == (2, True), ran.output


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    for name, value in inner:
        yield (*path, name)
        yield from places(value, (*path, name))


WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([2**31, 2**53, 10**25, -1, 0, 1e308, "\ud800", "", "chat", "completions", NOBODY, "0" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = sorted(places(MANIFEST), key=str)
REMOVE = object()


def mutated(changes: list[tuple[tuple[Any, ...], object]]) -> str:
    document = deepcopy(MANIFEST)
    for path, value in changes:
        place: Any = document
        try:
            for name in path[:-1]:
                place = place[name]
            if value is REMOVE:
                del place[path[-1]]
            else:
                place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    return json.dumps(document)


def run_of(wanted: Any) -> TrialRun:
    level = wanted.level
    return TrialRun([], 0, level.duration_s, level.drain_s, stopped=False, lag_ms=None, fingerprints={}, findings=[])


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), WILD | st.just(REMOVE)), min_size=1, max_size=3))
def test_whatever_was_changed_it_is_refused_or_can_be_run_and_kept(
    changes: list[tuple[tuple[Any, ...], object]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        manifest, rows = left(Path(name), mutated(changes))
        try:
            wanted = settled(manifest, rows, None, None, None, None)
        except (Unusable, ValueError):
            return
        summary = {"planned": 0, "statuses": {}}
        # What comes last, after everything was sent: it may not be the first to find a fault.
        assert manifest_content(manifest_of(wanted, Reached(None), run_of(wanted), "0" * 64, summary, ["draftproof"]))


@settings(max_examples=25, deadline=None)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), WILD | st.just(REMOVE)), min_size=1, max_size=2))
def test_the_command_itself_never_ends_in_a_fault(changes: list[tuple[tuple[Any, ...], object]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        ran = rerun(Path(name), mutated([*changes, (("base_url",), NOBODY)]))
        assert ran.exit_code in (2, 3), ran.output
        assert isinstance(ran.exception, SystemExit)
        assert not (Path(name) / "out").exists()
