"""Engines that others start: where each configuration is served, and the proof that it is the one that answers.

A table, a YAML file, says which configuration is served at which address. Nothing in it is a secret: a key is named by
its environment variable. Hooks are argument lists, and no shell ever sees them.
"""

import http.client
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loadtests.canonical import canonical, digest_of
from loadtests.configurations import Configuration
from loadtests.generator.endpoint import normalise
from loadtests.generator.said import Secrets, brief_text
from workers.engines.asking import TIMEOUT_S, Server
from workers.engines.base import EngineFacts, EngineFailed, EngineStopped, EngineUnfit, Spawned, Tells
from workers.engines.local_process import LOG_NAME, PASSED_ON, counters_of, metrics_of
from workers.engines.metrics import kv_cache_tokens, process_started
from workers.engines.startup_log import log_tail

CANARY_TIMEOUT_S = 60.0
HOOK_TIMEOUT_S = 600.0
POLL_S = 1.0

Words = Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Endpoint(Frozen):
    """Where one configuration is served. Without a start hook the server must be there before the boot begins."""

    base_url: str
    api_key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    start: Words | None = None
    stop: Words | None = None
    ready_timeout_s: float = Field(300.0, gt=0, le=7_200)

    @field_validator("base_url")
    @classmethod
    def an_address(cls, value: str) -> str:
        return normalise(value).removesuffix("/v1")


class EngineTable(Frozen):
    schema_: Literal["draftproof.remote-engines/1"] = Field("draftproof.remote-engines/1", alias="schema")
    engines: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], Endpoint]


@dataclass(frozen=True)
class House:
    """What this installation lets remote engines be: the table, the hosts they may be on, and how a key is read."""

    table: Path | None
    hosts: Sequence[str]
    read_variable: Callable[[str], str | None]


def read_table(path: Path) -> EngineTable:
    try:
        return EngineTable.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole file)"
        raise EngineUnfit(f"{path}, field {field}: {first['msg'].removeprefix('Value error, ')}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise EngineUnfit(f"the table of remote engines can't be read: {error}") from None


def find_endpoint(house: House, configuration: Configuration) -> Endpoint:
    """Raises EngineUnfit where the table doesn't serve the configuration, or serves it from a host of its own."""
    if house.table is None:
        raise EngineUnfit("remote engines need a table: name its file in DRAFTPROOF_REMOTE_ENGINES")
    endpoint = read_table(house.table).engines.get(configuration.digest)
    if endpoint is None:
        raise EngineUnfit(f"{house.table} serves no configuration {configuration.digest} ({configuration.label})")
    host = urlsplit(endpoint.base_url).hostname
    if host not in house.hosts:
        allowed = ", ".join(house.hosts) or "none"
        raise EngineUnfit(f"{host} is not among the hosts that DRAFTPROOF_REMOTE_HOSTS allows: {allowed}")
    return endpoint


def api_key(house: House, endpoint: Endpoint) -> str | None:
    if endpoint.api_key_env is None:
        return None
    if not (key := house.read_variable(endpoint.api_key_env)):
        raise EngineUnfit(f"the key of {endpoint.base_url} is missing: {endpoint.api_key_env} is not set")
    return key


@dataclass(frozen=True)
class Canary:
    """What one small request to the server showed."""

    fingerprint: str | None
    tells: Tells


@dataclass(frozen=True)
class RemoteEngine:
    server: Server
    endpoint: Endpoint
    model: str
    api_key: str | None
    facts: EngineFacts
    run_hook: Callable[[Sequence[str]], int]
    log_path: Path

    @property
    def base_url(self) -> str:
        return self.server.base_url

    @property
    def returncode(self) -> None:
        return None

    def alive(self) -> bool:
        return True

    def answers(self) -> bool:
        return is_ready(self.server)

    def log_tail(self, lines: int = 60) -> str:
        return log_tail(self.log_path, lines)

    def counters(self, timeout_s: float = TIMEOUT_S) -> dict[str, float]:
        """A counter's labels, and what can't be read, are the server's words."""
        secrets = Secrets(self.api_key)
        try:
            told = counters_of(self.server, timeout_s)
        except OSError as error:
            raise OSError(secrets.reason(brief_text(str(error)))) from None
        return {secrets.without_key(name): value for name, value in told.items()}

    def stop(self) -> None:
        if self.endpoint.stop and (code := self.run_hook(self.endpoint.stop)):
            raise OSError(f"the stop hook of {self.base_url} ended with exit status {code}")


def start(
    configuration: Configuration,
    *,
    house: House,
    directory: Path,
    should_stop: Callable[[], bool] = lambda: False,
    on_spawn: Callable[[Spawned], None] = lambda spawned: None,
) -> RemoteEngine:
    """Has the engine started where there is a hook, waits for it, and makes sure that it is the configuration."""
    endpoint = find_endpoint(house, configuration)
    key = api_key(house, endpoint)
    secrets = Secrets(key)
    server = Server(endpoint.base_url, {"Authorization": f"Bearer {key}"} if key else {})
    directory.mkdir(parents=True, exist_ok=True)
    log_path, since = directory / LOG_NAME, time.monotonic()
    hook = Hooks(configuration.digest, endpoint.base_url, log_path)
    # Its time counts from here; its own name is known once it answers.
    on_spawn(Spawned(None, None, uuid.uuid4().hex))
    try:
        come_up(endpoint, server, hook, should_stop)
        facts = identified(configuration, endpoint, server, since, secrets)
    except BaseException as error:
        if endpoint.start and endpoint.stop:
            hook(endpoint.stop)
        if isinstance(error, EngineUnfit):
            # It may quote the server, which knows the key.
            raise EngineUnfit(secrets.reason(brief_text(str(error)))) from None
        raise
    return RemoteEngine(server, endpoint, configuration.target.name, key, facts, hook, log_path)


@dataclass(frozen=True)
class Hooks:
    """Runs hooks; what they print is the boot's log. They learn from their environment what they are for."""

    configuration: str
    base_url: str
    log_path: Path

    def __call__(self, words: Sequence[str]) -> int:
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        told = {"DRAFTPROOF_CONFIGURATION": self.configuration, "DRAFTPROOF_BASE_URL": self.base_url}
        with self.log_path.open("ab") as log:
            try:
                ran = subprocess.run(  # noqa: S603 - a list from the operator's table, no shell
                    list(words),
                    env=passed_on | told,
                    cwd=self.log_path.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=HOOK_TIMEOUT_S,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise EngineUnfit(f"the hook {words[0]} could not be run: {error}") from None
        return ran.returncode


def come_up(endpoint: Endpoint, server: Server, hook: Hooks, should_stop: Callable[[], bool]) -> None:
    """A server that its start hook can't bring up is a result; one that should have been there is the operator's."""
    if endpoint.start is None:
        if not is_ready(server):
            raise EngineUnfit(f"nothing answers at {server.base_url}: start the server, or give its table a start hook")
        return
    if code := hook(endpoint.start):
        raise EngineFailed(f"the start hook ended with exit status {code}", log_tail(hook.log_path))
    until = time.monotonic() + endpoint.ready_timeout_s
    while not is_ready(server):
        if should_stop():
            raise EngineStopped("the start was called off")
        if time.monotonic() > until:
            said = f"{server.base_url} was not ready {endpoint.ready_timeout_s:g} s after its start hook"
            raise EngineFailed(said, log_tail(hook.log_path))
        time.sleep(POLL_S)


def is_ready(server: Server) -> bool:
    """By its model list, which every OpenAI-compatible server has."""
    try:
        return server.get("/v1/models", timeout_s=TIMEOUT_S)[0] == http.client.OK
    except OSError:
        return False


def identified(
    configuration: Configuration, endpoint: Endpoint, server: Server, since: float, secrets: Secrets
) -> EngineFacts:
    """Model list, version and one canary request. Raises EngineUnfit where one of them says that it is another engine;
    a server that tells no fingerprint at all is measured, and its evidence lacks it."""
    boot_seconds = time.monotonic() - since
    models = [secrets.name(one) for one in served_models(server)]
    if configuration.target.name not in models:
        raise EngineUnfit(
            f"{server.base_url} serves {', '.join(models) or 'no model'}, not {configuration.target.name}"
        )
    version = told_version(server)
    if version != configuration.runtime.version:
        raise EngineUnfit(f"{server.base_url} is version {version}, not {configuration.runtime.version}")
    if version.startswith("simulated"):
        raise EngineUnfit(f"{server.base_url} is a simulated engine: run it as one, so that its evidence says so")
    canary = sing(server, configuration)
    if canary.fingerprint not in (None, configuration.digest):
        raise EngineUnfit(f"{server.base_url} answers as {canary.fingerprint}, not as {configuration.digest}")
    metrics = metrics_or_none(server)
    return EngineFacts(
        server_id=server_name(endpoint, metrics),
        version=version,
        device=None,
        kv_cache_tokens=kv_cache_tokens(metrics or ""),
        max_model_len=configuration.arguments.max_model_len,
        boot_seconds=round(boot_seconds, 3),
        command=endpoint.start or (),
        tells=canary.tells,
        details={"base_url": server.base_url, "models": list(models), "fingerprint": canary.fingerprint},
    )


def answered(server: Server, path: str) -> dict[str, Any]:
    try:
        status, text = server.get(path)
        document = json.loads(text)
    except (OSError, ValueError) as error:
        raise EngineUnfit(f"{server.base_url}{path} gives no answer to identify the engine by: {error}") from None
    if status != http.client.OK or not isinstance(document, dict):
        raise EngineUnfit(f"{server.base_url}{path} answered {status}: the engine can't be identified")
    return document


def served_models(server: Server) -> tuple[str, ...]:
    listed = answered(server, "/v1/models").get("data")
    return tuple(str(one.get("id")) for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()


def told_version(server: Server) -> str:
    return str(answered(server, "/version").get("version"))


def sing(server: Server, configuration: Configuration) -> Canary:
    """One short request that asks for everything a trial could use; what does not come back is not told."""
    body = {
        "model": configuration.target.name,
        "messages": [{"role": "user", "content": "Say yes, yes, yes, yes."}],
        "max_tokens": 8,
        "temperature": 0.0,
        "return_token_ids": True,
    }
    try:
        status, text = server.post("/v1/chat/completions", canonical(body), timeout_s=CANARY_TIMEOUT_S)
        answer = json.loads(text)
        if status != http.client.OK:
            raise ValueError(f"HTTP {status}: {text}")
        metrics = answer.get("metrics") or {}
        choice = answer["choices"][0]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineUnfit(f"the canary request to {server.base_url} was not answered: {error}") from None
    return Canary(
        answer.get("system_fingerprint"),
        Tells(
            queue_time=metrics.get("queue_time_ms") is not None,
            acceptance=metrics.get("speculative_decoding") is not None,
            token_ids=choice.get("token_ids") is not None,
        ),
    )


def metrics_or_none(server: Server) -> str | None:
    try:
        return metrics_of(server, TIMEOUT_S)
    except OSError:
        return None


def server_name(endpoint: Endpoint, metrics: str | None) -> str:
    """Names the server's process, so that two boots on one server show as that. Without the process's own word a start
    hook vouches for a fresh server; without a hook every boot at this address counts as the same server."""
    began = process_started(metrics or "")
    if began is not None:
        return digest_of([endpoint.base_url, began])
    return uuid.uuid4().hex if endpoint.start else digest_of([endpoint.base_url])
