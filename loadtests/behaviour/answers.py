"""Everything that one server answered: what is judged, and the JSON lines that are kept as evidence. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from loadtests.behaviour.case import UNTOLD, Manner, Seen
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Asked, Drafts, Server
from loadtests.canonical import canonical, digest

SCHEMA = "draftproof.behaviour-answers/1"
REPLY = TypeAdapter(Reply)


@dataclass(frozen=True)
class Line:
    """One request and its answer. ``request`` is what the case asked, in neutral words; ``kind`` as what it went.
    ``asked_as``: the id of the line that this answer was asked for; None where that is this one."""

    case: str
    manner: str
    label: str
    kind: str
    request: Mapping[str, Any]
    reply: Reply
    asked_as: str | None = None

    @property
    def id(self) -> str:
        return f"{self.case}/{self.manner}/{self.label}"

    @property
    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "case": self.case,
            "manner": self.manner,
            "label": self.label,
            "kind": self.kind,
            "request": self.request,
            "reply": self.reply.as_document(),
        } | ({"asked_as": self.asked_as} if self.asked_as else {})


@dataclass(frozen=True)
class Answers:
    """``drafts`` by (case, manner); ``total`` of all requests together. ``died``: when and how the server stopped
    answering. ``stopped``: we were told to stop. What was not asked is in no line."""

    server: Server
    base_url: str
    plan_sha256: str
    lines: tuple[Line, ...]
    drafts: Mapping[tuple[str, str], Drafts] = field(default_factory=dict)
    total: Drafts = UNTOLD
    version: str | None = None
    died: str | None = None
    stopped: bool = False
    started_at: str | None = None
    # Runs that the end came in the middle of.
    unfinished: frozenset[tuple[str, str]] = frozenset()

    @cached_property
    def _by_run(self) -> dict[tuple[str, str], dict[str, Reply]]:
        found: dict[tuple[str, str], dict[str, Reply]] = {}
        for line in self.lines:
            found.setdefault((line.case, line.manner), {})[line.label] = line.reply
        return found

    def seen(self, case: str, manner: Manner) -> Seen:
        found = self._by_run.get((case, manner.id), {})
        # Half of a case says nothing, but for what got no answer.
        cut = (case, manner.id) in self.unfinished and not any(one.status == "failed" for one in found.values())
        return {} if cut else found

    def drafts_of(self, case: str, manner: Manner) -> Drafts:
        return self.drafts.get((case, manner.id), UNTOLD)

    @cached_property
    def content(self) -> bytes:
        """The JSON lines: first what is known of the server, then one line an answer, in the plan's order."""
        return b"".join(canonical(one) + b"\n" for one in self._documents())

    def _documents(self) -> Iterator[dict[str, Any]]:
        yield {
            "schema_version": SCHEMA,
            "server": self.server,
            "base_url": self.base_url,
            "plan_sha256": self.plan_sha256,
            "version": self.version,
            "died": self.died,
            "stopped": self.stopped,
            "started_at": self.started_at,
            "unfinished": [list(one) for one in sorted(self.unfinished)],
            "total": self.total.model_dump(mode="json"),
            "drafts": [
                {"case": case, "manner": manner} | drafts.model_dump(mode="json")
                for (case, manner), drafts in sorted(self.drafts.items())
            ],
        }
        yield from (line.document for line in self.lines)

    @property
    def asked(self) -> Asked:
        return Asked(
            base_url=self.base_url,
            requests=sum(line.asked_as is None for line in self.lines),
            failed=sum(line.reply.status == "failed" and line.asked_as is None for line in self.lines),
            answers_sha256=digest(self.content),
            version=self.version,
            died=self.died,
            stopped=self.stopped,
            started_at=self.started_at,
            drafts=self.total,
        )


def read_answers(content: bytes) -> Answers:
    """From their JSON lines; raises ValueError where they are none."""
    try:
        return answers_in(content)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"a line is not one of a {SCHEMA} file: {error!r:.200}") from None


def answers_in(content: bytes) -> Answers:
    first, *rest = content.splitlines()
    told = json.loads(first)
    if not isinstance(told, dict) or told.get("schema_version") != SCHEMA:
        raise ValueError(f"line 1 is not the head of a {SCHEMA} file")
    known = {one.name for one in fields(Answers)}
    drafts = {
        (one["case"], one["manner"]): Drafts.model_validate(
            {key: value for key, value in one.items() if key not in ("case", "manner")}
        )
        for one in told["drafts"]
    }
    plain = {key: value for key, value in told.items() if key in known - {"drafts", "total", "lines", "unfinished"}}
    return Answers(
        **plain,
        lines=tuple(read_line(one) for one in rest),
        drafts=drafts,
        total=Drafts.model_validate(told["total"]),
        unfinished=frozenset((case, manner) for case, manner in told["unfinished"]),
    )


def read_line(content: bytes) -> Line:
    told = json.loads(content)
    reply = REPLY.validate_python(told["reply"])
    return Line(told["case"], told["manner"], told["label"], told["kind"], told["request"], reply, told.get("asked_as"))
