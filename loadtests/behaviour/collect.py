"""Ask one server everything that a plan asks, and keep what it says.

Cases that run alone come first, one after the other, so that the server's counters tell the drafts of each; then all
concurrent ones at once, mixed, since what breaks most often breaks among other requests. What several cases ask alike
is asked once.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadtests.behaviour.answers import Answers, Line
from loadtests.behaviour.case import DRAWN, Ask, Case, Manner, answer_id
from loadtests.behaviour.counters import Counters
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.prompts import PREAMBLE
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Drafts
from loadtests.behaviour.result import Server as ServerName
from loadtests.behaviour.server import Server
from loadtests.canonical import digest_of
from loadtests.evidence.manifest import timestamp
from loadtests.generator.endpoint import Endpoint

# So many answers in a row that fail before they began, and a server is looked at before it is asked again.
STRIKES = 3
MAX_SEED = 2**31 - 1
# What a request that only fills the prefix cache needs not have.
NOT_WHEN_WARMING = ("min_tokens", "n", "stop", "stop_token_ids", "top_logprobs", "prompt_logprobs", "ignore_eos")


@dataclass(frozen=True)
class Progress:
    """After each run of a case: how many of the server's are done, and which was the last."""

    server: ServerName
    done: int
    planned: int
    last: str


Tell = Callable[[Progress], None]


class Over(Exception):
    """Nothing more is asked of this server."""


async def collect(
    endpoint: Endpoint,
    plan: SuitePlan,
    *,
    server: ServerName,
    on_progress: Tell | None = None,
    stop: asyncio.Event | None = None,
) -> Answers:
    """One server's answers to everything that the plan asks it; the control is asked what has to be compared with it
    alone. ``stop``, once set, ends it after the requests that are open.

    A server that dies, hangs or talks nonsense is in the answers. Raises Unreachable where nothing answers before
    the first request, ClientFault where this machine runs out of something.
    """
    asking = Server(endpoint, timeout_s=plan.timeout_s)
    await asking.probe()
    return await Collecting(asking, plan, server, on_progress, stop or asyncio.Event()).run()


class Collecting:
    def __init__(
        self, asking: Server, plan: SuitePlan, name: ServerName, tell: Tell | None, stop: asyncio.Event
    ) -> None:
        self.asking, self.plan, self.name, self.tell, self.stop = asking, plan, name, tell, stop
        self.runs = [one for one in plan.runs if name != "control" or one[0].control]
        self.lines: dict[tuple[str, str], list[Line]] = {}
        self.drafts: dict[tuple[str, str], Drafts] = {}
        self.died: str | None = None
        self.finished: set[tuple[str, str]] = set()
        self._strikes = 0
        # By what is asked: the id of the line that it was asked for. By that id: its answer.
        self._asked_for: dict[tuple[object, ...], str] = {}
        self._replies: dict[str, asyncio.Task[Reply]] = {}
        self._slots = asyncio.Semaphore(plan.concurrency)

    async def run(self) -> Answers:
        started_at = timestamp(time.time_ns())
        before = await self._counters()
        alone = [one for one in self.runs if runs_alone(self.plan, self.name, *one)]
        mixed = [one for one in self.runs if not runs_alone(self.plan, self.name, *one)]
        # Drawn, so that what runs beside what is no accident of the list.
        random.Random(self.plan.seed).shuffle(mixed)  # noqa: S311 - an order, no secret
        try:
            for case, manner in alone:
                await self._alone(case, manner)
            await all_of([self._run(case, manner) for case, manner in mixed])
        except Over:
            pass
        lines = tuple(line for case, manner in self.runs for line in self.lines.get((case.id, manner.id), ()))
        return Answers(
            server=self.name,
            base_url=self.asking.endpoint.base_url,
            plan_sha256=self.plan.digest,
            lines=lines,
            drafts=self.drafts,
            total=total_of([line.reply for line in lines if line.asked_as is None], before, await self._counters()),
            version=self.asking.abilities.version,
            died=self.died,
            stopped=self.stop.is_set() and len(self.finished) < len(self.runs),
            unfinished=frozenset(self.lines) - self.finished,
            started_at=started_at,
        )

    async def _counters(self) -> Counters | None:
        return await self.asking.counters() if self.asking.abilities.counters and self.died is None else None

    async def _alone(self, case: Case, manner: Manner) -> None:
        before = await self._counters()
        await self._run(case, manner)
        lines = self.lines[case.id, manner.id]
        self.drafts[case.id, manner.id] = drafts_of([line.reply for line in lines], before, await self._counters())

    async def _run(self, case: Case, manner: Manner) -> None:
        lines = self.lines.setdefault((case.id, manner.id), [])
        try:
            for step in case.steps:
                asks = step({line.label: line.reply for line in lines}, self.plan.settings)
                sparing = manner.load == "serial" and not self.plan.settings.thorough
                await self._ask_all(case, manner, [ask for ask in asks if not (sparing and ask.spared)], lines)
        finally:
            replies = [line.reply for line in lines]
            self.drafts[case.id, manner.id] = drafts_of(replies, None, None)
        self.finished.add((case.id, manner.id))
        if self.tell is not None:
            self.tell(Progress(self.name, len(self.finished), len(self.runs), f"{case.id} {manner.id}"))

    async def _ask_all(self, case: Case, manner: Manner, asks: Sequence[Ask], lines: list[Line]) -> None:
        room = asyncio.Semaphore(self._most(case, manner))

        async def put(ask: Ask) -> None:
            async with room:
                lines.append(await self._ask(case, manner, ask))

        order = {ask.label: place for place, ask in enumerate(asks, len(lines))}
        try:
            await all_of([put(ask) for ask in asks])
        finally:
            lines.sort(key=lambda line: order.get(line.label, -1))

    def _most(self, case: Case, manner: Manner) -> int:
        """Requests of the case at once. Where it is mixed with others, it leaves them room."""
        if sent_in(self.plan, self.name, case, manner).load == "serial":
            return 1
        alone = runs_alone(self.plan, self.name, case, manner)
        return self.plan.concurrency if alone else -(-self.plan.concurrency // 2)

    async def _ask(self, case: Case, manner: Manner, ask: Ask) -> Line:
        cached = manner.load == "cached" and has_prompt(ask)
        if cached:
            ask = replace(ask, body=with_preamble(ask.body))
        own = answer_id(case.id, manner, ask.label)
        stream = manner.stream if ask.stream is None else ask.stream
        asked_for = self._asked_for.setdefault(self._wanted(case, manner, ask, stream), own)
        if self._hides_drafts(case, manner, asked_for):
            asked_for = own
        seed = seed_of(self.plan.seed, self.name, asked_for)
        if asked_for == own:
            self._replies[own] = asyncio.ensure_future(self._answer(ask, stream=stream, seed=seed, cached=cached))
        reply = await self._replies[asked_for]
        body, other = with_seed(ask.body, seed), None if asked_for == own else asked_for
        return Line(case.id, manner.id, ask.label, self.asking.kind_of(ask), body, reply, other)

    def _wanted(self, case: Case, manner: Manner, ask: Ask, stream: bool) -> tuple[object, ...]:
        """Requests of which this is the same have the same answer."""
        load = sent_in(self.plan, self.name, case, manner).load
        return (load, stream, ask.kind, digest_of(ask.body)) if ask.common else (load, stream, case.id, ask.label)

    def _hides_drafts(self, case: Case, manner: Manner, asked_for: str) -> bool:
        """Whether to take that answer would leave the case's drafts untold: the counters, which alone tell them, stand
        still for what another case has asked."""
        if self.name != "candidate" or not self.asking.abilities.counters:
            return False
        answer = self._replies.get(asked_for)
        alone = runs_alone(self.plan, self.name, case, manner)
        return answer is not None and alone and answer.done() and answer.result().draft_tokens is None

    async def _answer(self, ask: Ask, *, stream: bool, seed: int, cached: bool) -> Reply:
        if cached:
            body = {key: value for key, value in ask.body.items() if key not in NOT_WHEN_WARMING}
            filling = await self._send(replace(ask, body=body | {"max_tokens": 1}), stream=False, seed=0)
            if self.died is not None:
                # Else nothing would be kept of what it died of.
                return filling
        return await self._send(ask, stream=stream, seed=seed)

    async def _send(self, ask: Ask, *, stream: bool, seed: int) -> Reply:
        async with self._slots:
            if self.died is not None or self.stop.is_set():
                raise Over
            reply = await self.asking.ask(replace(ask, body=with_seed(ask.body, seed)), stream=stream)
        if reply.status != "failed" or reply.http_status is not None:
            self._strikes = 0
        else:
            await self._strike(reply)
        return reply

    async def _strike(self, reply: Reply) -> None:
        """No answer: is anybody still there?"""
        self._strikes += 1
        gone = self.died is None and not await self.asking.alive()
        if self.died is None and (gone or self._strikes >= STRIKES):
            how = "it can't be reached any more" if gone else f"{self._strikes} requests in a row got no answer"
            self.died = f"{how}, the last one: {reply.error}"


def sent_in(plan: SuitePlan, server: ServerName, case: Case, manner: Manner) -> Manner:
    """Of the baseline, T2 takes what it does at all: that shows in a crowd too, which takes an eighth of the time."""
    in_a_crowd = server == "baseline" and case.tier == "T2" and case.source == "registry" and not case.undisturbed
    if in_a_crowd and manner.load == "serial" and not plan.settings.thorough:
        return Manner("concurrent", manner.stream)
    return manner


def runs_alone(plan: SuitePlan, server: ServerName, case: Case, manner: Manner) -> bool:
    return case.alone or sent_in(plan, server, case, manner).load != "concurrent"


async def all_of(waiting: Sequence[Awaitable[None]]) -> None:
    """Wait for every one of them, then raise what any of them raised: a fault of ours before the end of the asking."""
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    faults = [one for one in ended if isinstance(one, BaseException)]
    for fault in sorted(faults, key=lambda one: isinstance(one, Over)):
        raise fault


def drafts_of(replies: Sequence[Reply], before: Counters | None, after: Counters | None) -> Drafts:
    """By the answers where they tell any, else by the counters: those of a request that a stop string ended, or that
    has several choices, are told by no answer."""
    told = [one for one in replies if one.draft_tokens is not None]
    proposed = sum(one.draft_tokens or 0 for one in told)
    if proposed or (told and len(told) == len(replies)):
        return Drafts(proposed=proposed, accepted=sum(one.accepted_tokens or 0 for one in told), told_by="answers")
    return counted(before, after)


def total_of(replies: Sequence[Reply], before: Counters | None, after: Counters | None) -> Drafts:
    """Of the whole suite the counters know more than the answers."""
    found = counted(before, after)
    return found if found.told_by else drafts_of(replies, None, None)


def counted(before: Counters | None, after: Counters | None) -> Drafts:
    # Counters that fell are those of another boot.
    if before is None or after is None or after.proposed < before.proposed or after.accepted < before.accepted:
        return Drafts()
    return Drafts(
        proposed=after.proposed - before.proposed, accepted=after.accepted - before.accepted, told_by="counters"
    )


def has_prompt(ask: Ask) -> bool:
    return ask.kind in ("chat", "text")


def with_preamble(body: Any) -> dict[str, Any]:
    """The request behind a text that is longer than a block of the cache, so that a hit is possible."""
    if "prompt" in body:
        return {**body, "prompt": f"{PREAMBLE}\n\n{body['prompt']}"}
    return {**body, "messages": [{"role": "system", "content": PREAMBLE}, *body["messages"]]}


def with_seed(body: Any, seed: int) -> dict[str, Any]:
    return {**body, "seed": seed} if body.get("seed") == DRAWN else dict(body)


def seed_of(seed: int, server: str, answer: str) -> int:
    """Another one for every request on every server: the same seed would draw the same sample twice."""
    return int(digest_of([seed, server, answer])[:8], 16) % MAX_SEED
