"""Tool calls: the arguments are one JSON document that follows the tool's schema, in one piece and in many."""

from typing import Any

from loadtests.behaviour.case import SERIAL, WITH_CACHE, Case, Seen, always, broken, cannot_tell, held, shown
from loadtests.behaviour.cases.asking import chat, together
from loadtests.behaviour.cases.structured import TRAIN, TRAINS, schema_check
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding

NAME = "announce_train"
TOOL: dict[str, Any] = {
    "type": "function",
    # Without it the engine leaves it to the model whether the arguments follow the schema.
    "function": {"name": NAME, "description": "Announce a train.", "parameters": TRAINS, "strict": True},
}
FIELDS: dict[str, Any] = {
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": NAME}},
    "max_tokens": 140,
}
ASKED = f"Announce the steam train to the mill. Call the tool with {TRAIN}"
check = schema_check(TRAINS)


def rule(seen: Seen) -> Finding:
    return together((judged(label, reply) for label, reply in seen.items()), "no answer came")


def judged(label: str, reply: Reply) -> Finding:
    if not reply.choice.calls:
        return broken("the tool was not called, though the request names it", shown(label, reply.text))
    for call in reply.choice.calls:
        if call.name != NAME:
            return broken(f"a tool called {call.name!r} was called, and {NAME} was named", shown(label, call.arguments))
        problem = check(call.arguments)
        if problem is None:
            continue
        if reply.choice.finish_reason == "length":
            return cannot_tell("max_tokens cut the arguments off before they were whole")
        return broken(f"the arguments: {problem}", shown(label, call.arguments, at=len(call.arguments)))
    return held("the arguments follow the tool's schema")


def same_rule(seen: Seen) -> Finding:
    alone = rule(seen)
    if alone.state != "held":
        return alone
    whole, streamed = (seen[label].choice.calls for label in ("whole", "streamed"))
    if whole != streamed:
        # The grammar leaves a tie open: two sets of arguments that both follow it prove nothing.
        return cannot_tell("the arguments were other ones when they were streamed, and both follow the schema")
    return held("streamed arguments are the same as whole ones")


CASES = (
    Case(
        "tool-call",
        "A tool call's arguments follow the tool's schema",
        "T2",
        (always(chat("call", ASKED, common=True, **FIELDS), chat("again", f"{ASKED} It is late.", **FIELDS)),),
        rule=rule,
        needs=("tool_calls",),
        descends_from=(41967,),
        manners=WITH_CACHE,
    ),
    Case(
        "tool-call-streamed",
        "A streamed tool call has the arguments of a whole one",
        "T2",
        (
            always(
                chat("whole", ASKED, stream=False, common=True, **FIELDS),
                chat("streamed", ASKED, stream=True, common=True, **FIELDS),
            ),
        ),
        rule=same_rule,
        needs=("tool_calls",),
        descends_from=(41967,),
        manners=(SERIAL,),
        thorough=WITH_CACHE,
    ),
)
