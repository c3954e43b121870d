"""How faithfully clients keep a schedule, ours beside its peers: ``make bench-client``, rerun by hand.

One server that answers at once in streams of 64 tokens 5 ms apart, pinned to one core; one client after the other,
pinned to the other core, at the same constant rates. Punctuality is told by the moments at which the server received
the requests. Peers that are not installed, or that fail, are named with the reason. Not collected by pytest.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from loadtests.evidence.manifest import this_host
from loadtests.evidence.records import read_records

Floats = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
RATES = (20, 50, 100, 200, 300, 400, 600)
# Of the asked rate: who reaches less has fallen behind.
FELL = 0.97
TOKENS, GAP_MS = 64, 5.0
MODEL = "zero-latency"
PROMPT = "Tell me what the weather was like in the town where you grew up. " * 6
LAG_LIMIT_MS = 10.0
SERVER_CORE, CLIENT_CORE = "0", "1"
START_LIMIT_S = 240
# Measurements on the page, the newest first: machines differ.
MOST_KEPT = 4
AIPERF_TIMES = ("time_to_first_token", "request_latency")
VLLM = "from vllm.benchmarks.serve import *; from vllm.utils.argparse_utils import FlexibleArgumentParser as P; p = P()"
VLLM += "; add_cli_args(p); main(p.parse_args())"
# A tokenizer of single bytes: the peers want one, and what it says changes nothing that is measured here.
TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
symbols = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
made = Tokenizer(models.BPE(vocab={one: number for number, one in enumerate(symbols)}, merges=[]))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
template = "{{ messages[-1]['content'] }}"
fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", chat_template=template)
fast.save_pretrained(sys.argv[1])
"""


@dataclass(frozen=True)
class Run:
    """One client at one rate."""

    base_url: str
    rate: int
    seconds: float
    work: Path
    processes: int = 1

    @property
    def requests(self) -> int:
        return round(self.rate * self.seconds)

    @property
    def tokenizer(self) -> str:
        return str(self.work.parent / "tokenizer")


def ours(run: Run) -> list[str]:
    traffic = run.work / "traffic.jsonl"
    row = {"class": "chat", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS}
    lines = (
        json.dumps({"id": f"r{number}", "conversation": f"c{number}", "arrival_s": 0.0} | row)
        for number in range(run.requests)
    )
    traffic.write_text("\n".join([*lines, ""]), encoding="utf-8")
    command = [sys.executable, "-m", "config.cli", "replay", "--traffic", str(traffic), "--base-url", run.base_url]
    command += ["--model", MODEL, "--arrival", "constant", "--rate", str(run.rate), "--duration", str(run.seconds)]
    return [*command, "--out", str(run.work / "out"), "--token-ids", "--processes", str(run.processes)]


def vllm_bench(run: Run) -> list[str]:
    command = [str(ROOT / ".venv-engine/bin/python"), "-c", VLLM, "--backend", "openai-chat"]
    command += ["--base-url", run.base_url, "--endpoint", "/v1/chat/completions", "--model", MODEL]
    command += ["--tokenizer", run.tokenizer, "--dataset-name", "random", "--random-input-len", "100"]
    command += ["--random-output-len", str(TOKENS), "--num-prompts", str(run.requests), "--disable-tqdm"]
    command += ["--request-rate", str(run.rate), "--burstiness", "inf", "--save-result", "--save-detailed"]
    return [*command, "--result-dir", str(run.work), "--result-filename", "result.json"]


def aiperf(run: Run) -> list[str]:
    command = [str(ROOT / ".venv-peers/bin/aiperf"), "profile", "--model", MODEL, "--url", run.base_url]
    command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", run.tokenizer, "--isl", "100"]
    command += ["--osl", str(TOKENS), "--request-rate", str(run.rate), "--arrival-pattern", "constant"]
    return [*command, "--request-count", str(run.requests), "--ui", "none", "--artifact-dir", str(run.work / "out")]


def guidellm(run: Run) -> list[str]:
    command = [str(ROOT / ".venv-peers/bin/guidellm"), "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={run.base_url},model={MODEL}"]
    command += ["--profile", f"kind=constant,rate={run.rate}", "--tokenizer", f"kind=hf_auto,model={run.tokenizer}"]
    command += ["--constraint", f"kind=max_requests,count={run.requests}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={TOKENS}"]
    return [*command, "--output", f"kind=json,path={run.work / 'result.json'}"]


CLIENTS = {
    "ours, one process": ours,
    "ours, two processes on both cores": ours,
    "vllm bench serve": vllm_bench,
    "AIPerf": aiperf,
    "GuideLLM": guidellm,
}


def on_core(core: str, command: Sequence[str], *, realtime: bool) -> list[str]:
    return [*(["chrt", "--rr", "10"] if realtime else []), "taskset", "--cpu-list", core, *command]


@contextmanager
def server(*, realtime: bool) -> Iterator[str]:
    command = [sys.executable, "-m", "loadtests.generator.zero_latency", "--tokens", str(TOKENS)]
    command = on_core(SERVER_CORE, [*command, "--gap-ms", str(GAP_MS)], realtime=realtime)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


class Meter(threading.Thread):
    """The processor time of a process and its descendants, again and again, with the moment."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root, self.readings, self.over = psutil.Process(pid), list[tuple[int, float]](), threading.Event()
        self.used: dict[int, float] = {}

    def run(self) -> None:
        while not self.over.wait(0.1):
            try:
                family = [self.root, *self.root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for one in family:
                # One that has ended keeps what it had used.
                try:
                    times = one.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                self.used[one.pid] = times.user + times.system
            self.readings.append((time.monotonic_ns(), sum(self.used.values())))

    def between(self, start_ns: int, end_ns: int) -> float:
        moments, used = zip(*self.readings, strict=True)
        return float(np.interp(end_ns, moments, used) - np.interp(start_ns, moments, used))


def figures(run: Run, told: Sequence[Sequence[int]], meter: Meter) -> dict[str, Any]:
    """From the server's times of the scheduled requests, in the order of their receipt."""
    received = np.array([one[0] for one in told], dtype=np.float64)
    late_ms = (received - np.arange(len(received)) / run.rate * 1e9) / 1e6
    late_ms -= late_ms.min()
    end_ns = max(one[-1] for one in told)
    return {
        "rate": run.rate,
        "received": len(told),
        "reached_rate": round((len(told) - 1) / (received[-1] - received[0]) * 1e9, 1),
        "lag_ms": {name: round(float(np.quantile(late_ms, at)), 2) for name, at in (("p50", 0.5), ("p99", 0.99))},
        "cpu_ms_per_request": round(meter.between(told[0][0], end_ns) / len(told) * 1e3, 3),
    }


Latencies = tuple[Floats, Floats, Floats]


def reported(name: str, work: Path) -> Latencies | None:
    """What the client itself says of each request: the moment of sending, and from there the milliseconds to the first
    token and to the completion; None where it doesn't tell them."""
    if name.startswith("ours"):
        table = read_records(work / "out" / "records.parquet")
        sent, first, last = (np.array(table[one], np.float64) for one in ("sent_ns", "first_token_ns", "last_token_ns"))
        return sent, (first - sent) / 1e6, (last - sent) / 1e6
    if name == "vllm bench serve":
        found = json.loads((work / "result.json").read_text())
        wholes = [first + sum(one) for first, one in zip(found["ttfts"], found["itls"], strict=True)]
        return np.array(found["start_times"]), np.array(found["ttfts"]) * 1e3, np.array(wholes) * 1e3
    if name == "AIPerf":
        lines = [json.loads(line) for line in (work / "out" / "profile_export.jsonl").read_text().splitlines()]
        told = [one for one in lines if "time_to_first_token" in one["metrics"]]
        values = [[float(one["metrics"][key]["value"]) for one in told] for key in AIPERF_TIMES]
        sent = np.array([one["metadata"]["request_start_ns"] for one in told], np.float64)
        return sent, np.array(values[0]), np.array(values[1])
    return None


def added(said: Latencies, times: Sequence[Sequence[int]]) -> dict[str, float]:
    """What each request took at the client beyond what it took at the server, p99 in ms. A client's requests are
    received in the order in which they are sent."""
    whole = np.array([one for one in times if len(one) == 3], np.float64)
    if len(whole) != len(said[0]):
        return {}
    order = np.argsort(said[0], kind="stable")
    first = said[1][order] - (whole[:, 1] - whole[:, 0]) / 1e6
    completion = said[2][order] - (whole[:, 2] - whole[:, 0]) / 1e6
    return {"added_first_token_p99_ms": round(p99(first), 2), "added_completion_p99_ms": round(p99(completion), 2)}


def p99(values: Any) -> float:
    return float(np.quantile(values, 0.99))


def measure(name: str, rate: int, seconds: float, scratch: Path, *, realtime: bool) -> dict[str, Any]:
    work = scratch / f"{name.split(',')[0]}-{rate}-{time.monotonic_ns()}".replace(" ", "-")
    work.mkdir()
    both = "both cores" in name
    with server(realtime=realtime) as base_url:
        run = Run(base_url, rate, seconds, work, processes=2 if both else 1)
        core = f"{SERVER_CORE},{CLIENT_CORE}" if both else CLIENT_CORE
        command = on_core(core, CLIENTS[name](run), realtime=realtime)
        quiet = os.environ | {"VLLM_NO_USAGE_STATS": "1", "PYTHONWARNINGS": "ignore"}
        # Offline, AIPerf takes a tokenizer's path for a name on the hub.
        quiet |= {} if name == "AIPerf" else {"HF_HUB_OFFLINE": "1"}
        with (work / "log").open("wb") as log:
            client = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=quiet)
            meter = Meter(client.pid)
            meter.start()
            try:
                client.wait(START_LIMIT_S + 3 * seconds)
            except subprocess.TimeoutExpired:
                stop_family(client.pid)
                return {"rate": rate, "failed": f"had not ended after {START_LIMIT_S + 3 * seconds:g} s"}
            finally:
                meter.over.set()
        times: list[list[int]] = json.load(urllib.request.urlopen(f"{base_url}/times"))  # noqa: S310
    if client.returncode or len(times) < run.requests:
        last = (work / "log").read_text(errors="replace").strip().splitlines()[-1:] or [""]
        return {"rate": rate, "failed": f"exit {client.returncode}, {len(times)} requests received: {last[0][:200]}"}
    said = reported(name, work)
    # What came before was the client's own check.
    scheduled = sorted(times)[-run.requests :]
    return figures(run, scheduled, meter) | ({} if said is None else added(said, scheduled))


def stop_family(pid: int) -> None:
    family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    for one in family:
        one.kill()
    psutil.wait_procs(family, timeout=10)


def version_of(name: str) -> str | None:
    if name.startswith("ours"):
        return importlib.metadata.version("draftproof")
    environment, package = {
        "vllm bench serve": (".venv-engine", "vllm"),
        "AIPerf": (".venv-peers", "aiperf"),
        "GuideLLM": (".venv-peers", "guidellm"),
    }[name]
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        return None
    # The CPU build of vLLM has another name.
    wanted = f"next(one.version for one in m.distributions() if one.name.startswith({package!r}))"
    code = f"import importlib.metadata as m; print({wanted})"
    told = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return told.stdout.strip() or None


def make_tokenizer(scratch: Path) -> None:
    environments = [ROOT / one / "bin" / "python" for one in (".venv-engine", ".venv-peers")]
    python = next((one for one in environments if one.exists()), None)
    if python is not None:
        subprocess.run([str(python), "-c", TOKENIZER, str(scratch / "tokenizer")], check=True, capture_output=True)


def run_all(names: Sequence[str], rates: Sequence[int], seconds: float, repeats: int, realtime: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: {"version": version_of(name), "runs": []} for name in names}
    scratch = Path(tempfile.mkdtemp(prefix="draftproof-bench-client-"))
    load = os.getloadavg()[0]
    try:
        make_tokenizer(scratch)
        # Client after client at one rate, so that what disturbs the machine disturbs neighbours alike.
        for rate in [rate for rate in rates for _ in range(repeats)]:
            for name in names:
                if found[name]["version"] is None or fell_below(rate, found[name]["runs"]):
                    continue
                one = measure(name, rate, seconds, scratch, realtime=realtime)
                found[name]["runs"].append(one)
                print(name, json.dumps(one), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    host = this_host()
    machine = {"processor": host.processor, "cores": host.logical_cpus, "system": host.system, "load_before": load}
    how = {"seconds": seconds, "repeats": repeats, "realtime": realtime, "tokens": TOKENS, "gap_ms": GAP_MS}
    today = datetime.now(tz=UTC).date().isoformat()
    return {"date": today, "machine": machine, "how": how, "clients": found}


def fell_below(rate: int, runs: Sequence[dict[str, Any]]) -> bool:
    """Whether the client fell behind at a lower rate already: it isn't asked for more."""
    lower = [one for one in runs if one["rate"] < rate and "failed" not in one]
    return any(one["reached_rate"] < FELL * one["rate"] for one in lower)


def best(runs: Sequence[dict[str, Any]], rate: int) -> dict[str, Any] | None:
    """The run with the middle lag: repeats vary."""
    done = sorted(
        (one for one in runs if one["rate"] == rate and "failed" not in one), key=lambda one: one["lag_ms"]["p99"]
    )
    return done[len(done) // 2] if done else None


def cell(one: dict[str, Any] | None, rate: int) -> str:
    if one is None:
        return "—"
    fell = one["reached_rate"] < FELL * rate
    return f"falls to {one['reached_rate']:g}/s" if fell else f"{one['lag_ms']['p99']:,.1f}"


def highest(runs: Sequence[dict[str, Any]], rates: Sequence[int]) -> int:
    """The highest of the rates that was held with a lag p99 within the limit."""
    held = [rate for rate in rates if (one := best(runs, rate)) is not None and one["lag_ms"]["p99"] <= LAG_LIMIT_MS]
    return max(held, default=0)


def table(found: dict[str, Any], rates: Sequence[int], title: str, tell: Any) -> list[str]:
    lines = [f"### {title}", "", f"| | {' | '.join(f'{rate}/s' for rate in rates)} |", f"|---|{'---:|' * len(rates)}"]
    for name, client in found["clients"].items():
        version = client["version"] or "not installed"
        cells = " | ".join(tell(best(client["runs"], rate), rate) for rate in rates)
        lines.append(f"| {name} ({version}) | {cells} |")
    return [*lines, ""]


def figure(key: str) -> Any:
    return lambda one, rate: "—" if one is None or key not in one else f"{one[key]:,.2f}"


def page(every: Sequence[dict[str, Any]]) -> str:
    """``every`` measurement, the newest first."""
    how = every[0]["how"]
    lines = [
        "# Clients",
        "",
        "Written by `make bench-client` (`tests/benchmarks/client.py`). One server that answers at once, in streams",
        f"of {how['tokens']} tokens {how['gap_ms']:g} ms apart, on one core; each client on the other core, in turn,",
        "at a constant rate; shown is the run with the middle lag. The lag is counted from the moments at which the",
        "server received the requests: what a client says of itself isn't in it. Ours is all of `draftproof replay`:",
        "token ids counted, answers hashed, evidence written. Figures compare within a measurement, not across: these",
        "are virtual machines of two cores, and one may be several times slower than the next.",
        "",
    ]
    return "\n".join([*lines, *(line for one in every for line in measurement(one))])


def measurement(found: dict[str, Any]) -> list[str]:
    machine, how = found["machine"], found["how"]
    rates = sorted({run["rate"] for client in found["clients"].values() for run in client["runs"]})
    lines = [
        f"## {found['date']}: {machine['processor']}, {machine['cores']} cores",
        "",
        f"{machine['system']}; load before the run {machine['load_before']:.1f}. Each rate for {how['seconds']:g} s, "
        f"{how['repeats']} times.",
        *(
            ["Server and clients ran at real-time priority, because other programs were at work."]
            if how["realtime"]
            else []
        ),
        "",
        *table(found, rates, "Lag behind the schedule, p99, in ms", cell),
        *table(found, rates, "Processor time per request, in ms", figure("cpu_ms_per_request")),
        *table(
            found,
            rates,
            "First token, added to the server's own, p99 in ms",
            figure("added_first_token_p99_ms"),
        ),
        *table(
            found,
            rates,
            "Completion, added to the server's own, p99 in ms",
            figure("added_completion_p99_ms"),
        ),
        f"Highest rate held with a lag p99 of at most {LAG_LIMIT_MS:g} ms: "
        + ", ".join(f"{name} {highest(one['runs'], rates)}/s" for name, one in found["clients"].items())
        + ".",
        "",
    ]
    failed = [
        f"- {name} at {one['rate']}/s: {one['failed']}"
        for name, client in found["clients"].items()
        for one in client["runs"]
        if "failed" in one
    ]
    return [*lines, *(["Runs that failed:", "", *failed, ""] if failed else [])]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rates", type=int, nargs="+", default=list(RATES))
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    options.add_argument("--realtime", action="store_true", help="Where other programs disturb: needs the right to it.")
    options.add_argument("--out", type=Path, default=RESULTS)
    asked = options.parse_args()
    found = run_all(asked.clients, asked.rates, asked.seconds, asked.repeats, asked.realtime)
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "client.json"
    earlier = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    every = [found, *earlier][:MOST_KEPT]
    kept.write_text(json.dumps(every, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (asked.out / "client.md").write_text(page(every), encoding="utf-8")
    print(page(every))


if __name__ == "__main__":
    main()
