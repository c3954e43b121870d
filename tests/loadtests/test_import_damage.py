"""What a damaged file loses is what is damaged, and nothing beside it is lost without a word."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.commands.import_traffic import import_traffic
from loadtests.traffic.importers import ImportRefused, Wanted, import_file, read_mapping
from loadtests.traffic.importers.source import opened
from loadtests.traffic.importers.values import offset_ns

DAMAGED = "compressed file damaged or cut short"
MAPPING = ["a=arrival_s", "b=prompt_tokens", "c=max_tokens"]


def zstd(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, "zstd", asbytes=True))


PACKED: list[Callable[[bytes], bytes]] = [gzip.compress, zstd]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(content: bytes | str, name: str = "traffic", mapping: list[str] | None = None) -> dict[str, Any]:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return import_file(Wanted(tmp_path / name, mapping=read_mapping(mapping or [])), tmp_path / "set")

    return run


def rows_in(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "set" / "rows.jsonl").open()]


def problems_in(tmp_path: Path) -> list[tuple[Any, ...]]:
    found = [json.loads(line) for line in (tmp_path / "set" / "problems.jsonl").open()]
    return [(one["line"], one["field"], one["reason"]) for one in found]


def prompts(count: int) -> bytes:
    numbers = Random(count)
    return b"".join(b'{"prompt": "%x", "output_tokens": 1}\n' % numbers.getrandbits(900) for _ in range(count))


# Compressed


@pytest.mark.parametrize("compress", PACKED)
def test_a_compressed_file_cut_before_its_first_row_is_called_damaged(
    imported: Callable[..., Any], compress: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(ImportRefused, match=f"cut: {DAMAGED} .it ends before its end"):
        imported(compress(prompts(400))[:40], "cut")


@pytest.mark.parametrize("compress", PACKED)
def test_what_follows_the_end_of_a_compressed_file_costs_no_row(
    imported: Callable[..., Any], compress: Callable[[bytes], bytes]
) -> None:
    document = imported(compress(prompts(100)) + b"garbage")
    assert (document["rows"], document["skipped"]) == (100, {DAMAGED: 1})


@pytest.mark.parametrize("compress", PACKED)
def test_a_second_part_that_is_cut_is_told(imported: Callable[..., Any], compress: Callable[[bytes], bytes]) -> None:
    document = imported(compress(prompts(100)) + compress(prompts(100))[:30])
    assert (document["rows"], document["skipped"]) == (100, {DAMAGED: 1})


def test_zeros_after_gzip_and_frames_that_zstd_skips_are_no_damage(
    imported: Callable[..., Any], tmp_path: Path
) -> None:
    assert imported(gzip.compress(prompts(3)) + bytes(600))["skipped"] == {}
    (tmp_path / "framed").write_bytes(b"\x53\x2a\x4d\x18\x05\0\0\0notes".join([zstd(prompts(3)), zstd(prompts(2))]))
    document = import_file(Wanted(tmp_path / "framed"), tmp_path / "again")
    assert (document["rows"], document["skipped"]) == (5, {})


@settings(max_examples=30)
@given(content=st.binary(max_size=300_000), cut=st.floats(0, 1), flip=st.booleans())
@pytest.mark.parametrize("compress", PACKED)
def test_what_comes_before_the_damage_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    compress: Callable[[bytes], bytes],
    content: bytes,
    cut: float,
    flip: bool,
) -> None:
    whole = compress(content)
    at = int(cut * (len(whole) - 1))
    path = tmp_path_factory.mktemp("packed") / "f"
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] if flip else whole[:at])
    with opened(path) as source:
        if source.compression is None:
            return
        found = b"".join(source.chunks())
        if not flip:
            assert source.damage
            assert content.startswith(found)
        elif compress is gzip.compress:
            # These zstd frames carry no checksum by which a changed byte would be noticed.
            assert source.damage or found == content


# Tables and lists


def test_a_compressed_file_that_holds_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    bomb = b'{"prompt": "' + bytes(3_000_000).replace(b"\0", b"a") + b'", "output_tokens": 1}\n'
    for name, content in (("bomb.gz", gzip.compress(bomb)), ("bomb.zst", zstd(bomb))):
        assert len(content) < 10_000
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImportRefused) as refusal:
            import_file(Wanted(tmp_path / name, unpacked_limit=1_000_000), tmp_path / "set")
        assert str(refusal.value) == (
            f"{name} unpacks to more than 1,000,000 bytes, the limit for a compressed file: split it, or raise "
            "--unpacked-limit"
        )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bomb.gz", "bomb.zst"]


def test_a_donor_is_bounded_too_and_a_plain_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "donor.gz").write_bytes(gzip.compress(prompts(40)))
    (tmp_path / "trace").write_text('{"prompt_tokens": 60, "max_tokens": 9}\n')
    with pytest.raises(ImportRefused, match=r"donor\.gz unpacks to more than 100 bytes"):
        import_file(Wanted(tmp_path / "trace", donor=tmp_path / "donor.gz", unpacked_limit=100), tmp_path / "set")
    (tmp_path / "plain").write_bytes(prompts(40))
    assert import_file(Wanted(tmp_path / "plain", unpacked_limit=100), tmp_path / "set")["rows"] == 40


def test_a_stray_quote_spoils_its_own_line(imported: Callable[..., Any], tmp_path: Path) -> None:
    lines = [f"{at},10,10" for at in range(10_000)]
    lines[100] = '"' + lines[100]
    lines[7_000] = lines[7_000].replace(",", ',"', 1)
    document = imported("\n".join(["a,b,c", *lines]), mapping=MAPPING)
    assert (document["rows"], sum(document["skipped"].values())) == (9_998, 2)
    assert [line for line, *_ in problems_in(tmp_path)] == [102, 7_002]


def test_a_row_over_many_lines_is_still_one_row(imported: Callable[..., Any], tmp_path: Path) -> None:
    imported('p,n\n"one\ntwo, 3\n",5\n"four\nfive', mapping=["p=prompt", "n=max_tokens"])
    assert [row["messages"][0]["content"] for row in rows_in(tmp_path)] == ["one\ntwo, 3\n"]
    assert problems_in(tmp_path) == [
        (5, "(whole line)", "cut short at the end of the file"),
        (6, "(whole line)", "cut short at the end of the file"),
    ]


def test_no_row_is_made_up_from_the_lines_of_a_text(imported: Callable[..., Any], tmp_path: Path) -> None:
    document = imported('p\ngood\n"never closed\nAdd salt.\nStir.\n', mapping=["p=prompt"])
    assert (document["rows"], document["skipped"]) == (1, {"not CSV": 3})
    assert [line for line, *_ in problems_in(tmp_path)] == [3, 4, 5]


def test_a_header_that_cannot_be_read_is_refused(imported: Callable[..., Any]) -> None:
    with pytest.raises(ImportRefused, match="the header can't be read: not CSV"):
        imported('a,"b"c\n1,2\n', mapping=["a=prompt"])


@pytest.mark.parametrize("between", [",", ",\n", " , "])
@pytest.mark.parametrize(
    "broken",
    [
        '{"prompt": "bad, "output_tokens": 3}',
        '{"prompt": "bad" quote", "output_tokens": 3}',
        '{"prompt": "a", "more": [{"b": "bad"quote"}, {"b": "x"}]}',
    ],
)
def test_a_quote_that_never_closes_spoils_one_element(imported: Callable[..., Any], broken: str, between: str) -> None:
    elements = [json.dumps({"prompt": f"p{at} }},{{ [", "output_tokens": 3}) for at in range(1_000)]
    elements[5] = broken
    document = imported(f"[{between.join(elements)}]")
    assert (document["rows"], document["skipped"]) == (999, {"not JSON": 1})


# Names and numbers


def test_half_of_a_surrogate_pair_in_a_name_is_spelt_out(imported: Callable[..., Any], tmp_path: Path) -> None:
    document = imported('{"prompt":"x","output_tokens":5,"\\ud800":1}\n{"prompt":"y","output_tokens":5}\n')
    assert document["unread_fields"] == {"\\ud800": 1}
    own = tmp_path / "own.jsonl"
    own.write_text('{"prompt":"a","max_tokens":5}\n{"prompt":"b","max_tokens":5,"\\ud800":1}\n')
    import_file(Wanted(own), tmp_path / "own")
    assert json.loads((tmp_path / "own" / "problems.jsonl").read_text())["field"] == "\\ud800"


def test_a_file_name_that_is_no_utf8_is_spelt_out(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl"))
    path.write_text('{"prompt":"x","output_tokens":0}\n{"prompt":"y","output_tokens":5}\n')
    result = CliRunner().invoke(import_traffic, [str(path), "--out", str(tmp_path / "set")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["source"]["file"] == "bad\\xff.jsonl"
    path.write_text("")
    refused = CliRunner().invoke(import_traffic, [str(path), "--out", str(tmp_path / "again")])
    assert (refused.exit_code, "bad\\xff.jsonl: the file is empty" in refused.output) == (2, True)


def test_a_number_of_a_million_digits_is_read_at_once(imported: Callable[..., Any], tmp_path: Path) -> None:
    begun = time.monotonic()
    digits = "1" * 1_000_000
    imported(f'{{"prompt":"a","arrival_s":0.{digits}}}\n{{"prompt":"b","arrival_s":1}}\n')
    assert time.monotonic() - begun < 10
    assert [row["arrival_s"] for row in rows_in(tmp_path)] == [0, 0.888888889]
    assert offset_ns("0." + digits[:30], 10**9, "t") == 111_111_111


def own(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps({"prompt": f"p{at}", "max_tokens": 5, **row}) + "\n" for at, row in enumerate(rows))


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        (({}, {"id": "r0000001"}), "id"),
        (({"id": "r0000002"}, {}), "id"),
        (({"id": "x"}, {"conversation": "x"}), "conversation"),
        (({"conversation": "x"}, {"id": "x"}), "id"),
        (({}, {"conversation": "r0000001"}), "conversation"),
    ],
)
def test_no_two_rows_are_called_the_same(
    imported: Callable[..., Any], tmp_path: Path, rows: tuple[dict[str, Any], ...], field: str
) -> None:
    document = imported(own(*rows))
    assert (document["rows"], document["conversations"]) == (1, 1)
    assert problems_in(tmp_path) == [(2, field, "id used twice")]


def test_a_number_that_stands_for_no_row_is_free(imported: Callable[..., Any]) -> None:
    rows = ({"max_tokens": 0}, {"id": "r0000001"}, {"id": "c", "conversation": "c"}, {"conversation": "c"})
    document = imported(own(*rows))
    assert (document["rows"], document["skipped"]) == (3, {"zero-length output": 1})


# Where it is put


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kill_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "endless")
    command = [sys.executable, "-m", "config.cli", "import", str(tmp_path / "endless"), "--out", str(tmp_path / "set")]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as process,
        # Open for both, it doesn't wait for a reader that may have ended.
        (tmp_path / "endless").open("r+b", buffering=0) as endless,
    ):
        endless.write(prompts(50))
        until = time.monotonic() + 30
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert [one.name for one in tmp_path.iterdir()] == ["endless"]


def test_a_place_that_cannot_be_replaced_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").write_bytes(prompts(3))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ImportRefused, match="name a new directory in it, such as set"):
        import_file(Wanted(tmp_path / "t"), Path())
    with pytest.raises(ImportRefused, match="name a new directory in it"):
        import_file(Wanted(tmp_path / "t"), Path("/proc"))


def test_a_link_to_an_empty_directory_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(prompts(3))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    import_file(Wanted(tmp_path / "t"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "import.json").exists()
