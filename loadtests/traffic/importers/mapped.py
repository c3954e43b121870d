"""Files under other names: a mapping from their columns to our fields, which the engineer gives."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loadtests.traffic.importers.detect import LOOKED_AT, paths
from loadtests.traffic.importers.drafts import Draft, Drafted, dialogue, messages_of, numbered, user
from loadtests.traffic.importers.formats import Format, Shape, prompt_text, turn_of
from loadtests.traffic.importers.problems import BadField, ImportRefused, Reason, Unreadable, listed, what_it_is
from loadtests.traffic.importers.records import Found, Record
from loadtests.traffic.importers.values import (
    UNITS,
    filled,
    instant_ns,
    offset_ns,
    optional_output,
    optional_text,
    prompt_length,
)

TIMES = {f"arrival_{unit}": size for unit, size in UNITS.items()}
INSTANT = "arrival_at"
TEXTS = ("prompt", "messages", "dialogue")
TARGETS = (*TIMES, INSTANT, *TEXTS, "prompt_tokens", "max_tokens", "class", "conversation", "turn", "tenant", "id")

ColumnMap = tuple[tuple[str, str], ...]


def read_mapping(pairs: Sequence[str]) -> ColumnMap:
    """ "column=field" pairs; raises ImportRefused for one that says nothing or two that contradict each other."""
    mapping = tuple(one.strip().rpartition("=")[::2] for one in pairs)
    for pair, (source, target) in zip(pairs, mapping, strict=True):
        if not source or target not in TARGETS:
            raise ImportRefused(f"--map {pair}: write COLUMN=FIELD, where FIELD is one of {', '.join(TARGETS)}")
    if mapping:
        check_mapping([target for _, target in mapping])
    return mapping


def check_mapping(targets: list[str]) -> None:
    twice = sorted({one for one in targets if targets.count(one) > 1 and one != "prompt"})
    if twice:
        raise ImportRefused(f"two columns are mapped to {', '.join(twice)}; only prompt takes several")
    if len({*TIMES, INSTANT} & set(targets)) > 1:
        raise ImportRefused("two columns are mapped to the arrival time: give one")
    texts = set(TEXTS) & set(targets)
    if len(texts) > 1:
        raise ImportRefused(f"the text can't come from {' and '.join(sorted(texts))} at once")
    if not texts and not {"prompt_tokens", "max_tokens"} <= set(targets):
        raise ImportRefused(
            "map a column to prompt, messages or dialogue; a file of lengths alone needs prompt_tokens and max_tokens"
        )


def mapped_format(mapping: ColumnMap, shape: Shape, *, header: bool) -> Format:
    sources: dict[str, tuple[str, ...]] = {}
    for source, target in mapping:
        sources[target] = (*sources.get(target, ()), source)

    def parse(record: Record) -> Iterator[Drafted]:
        return mapped(record, sources)

    columns = tuple(source for source, _ in mapping)
    needs = () if shape == "json" else columns
    return Format("mapped", shape, parse, frozenset(columns), needs=needs, header=header)


class Sightings:
    """Which fields of a mapping no record has: in JSON that is known at the end alone."""

    def __init__(self, mapping: ColumnMap) -> None:
        self._unseen = {source for source, _ in mapping}
        self._looked_at = 0
        self._names: dict[str, None] = {}

    def among(self, records: Iterable[Found]) -> Iterator[Found]:
        for record in records:
            if self._unseen and isinstance(record, Record):
                self._look(record.fields)
            yield record

    def _look(self, fields: Mapping[str, Any]) -> None:
        self._unseen = {name for name in self._unseen if looked_up(fields, name, absent=ABSENT) is ABSENT}
        if self._unseen and self._looked_at < LOOKED_AT:
            self._looked_at += 1
            self._names |= dict.fromkeys(name for name, _ in paths(fields))

    def check(self) -> None:
        """Raises Unreadable where a field was in none of the records."""
        if self._unseen and self._looked_at:
            raise Unreadable(f"no record has a field {listed(sorted(self._unseen))}; they have {listed(self._names)}")


def mapped(record: Record, sources: Mapping[str, tuple[str, ...]]) -> Iterator[Drafted]:
    """One record under the mapping; fields are named in problems as the file names them."""
    found = {name: looked_up(record.fields, name) for names in sources.values() for name in names}
    name = {target: names[0] for target, names in sources.items()}
    base = Draft(record.number, record.line, **plain_fields(found, name))
    if "dialogue" in name:
        called = base.id or base.conversation or numbered(record.number)
        yield from dialogue(base, found[name["dialogue"]], name["dialogue"], name=called)
    elif "messages" in name:
        yield base._replace(messages=messages_of(found[name["messages"]], name["messages"]))
    elif "prompt" in name:
        yield base._replace(messages=user(joined_prompt(found, sources["prompt"])))
    else:
        yield base


def plain_fields(found: Mapping[str, Any], name: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for target in ("id", "conversation", "class"):
        if target in name:
            fields["class_" if target == "class" else target] = optional_text(found, name[target])
    if "tenant" in name:
        fields["tenant"] = optional_text(found, name["tenant"]) or ""
    if "turn" in name:
        fields["turn"] = turn_of(found, name["turn"])
    if "prompt_tokens" in name:
        fields["prompt_tokens"] = prompt_length(found, name["prompt_tokens"])
    if "max_tokens" in name:
        fields["max_tokens"] = optional_output(found, name["max_tokens"])
    return fields | arrival(found, name)


def arrival(found: Mapping[str, Any], name: Mapping[str, str]) -> dict[str, Any]:
    if INSTANT in name:
        time_ns, zoned = instant_ns(filled(found, name[INSTANT]), name[INSTANT])
        return {"time_ns": time_ns, "zoned": zoned}
    for target, unit in TIMES.items():
        if target in name:
            return {"time_ns": offset_ns(filled(found, name[target]), unit, name[target])}
    return {}


ABSENT = object()


def looked_up(fields: Mapping[str, Any], path: str, absent: object = None) -> Any:
    """The value under a name, or under a path of names and positions with dots between ("instances.0.input")."""
    if path in fields:
        return fields[path]
    value: Any = fields
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part, absent)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(value):
            value = value[int(part[:9])]
        else:
            return absent
    return value


def joined_prompt(found: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """One text from several columns, a blank line between; where one of several is empty, the rest will do."""
    texts = [found[name] for name in names]
    for name, text in zip(names, texts, strict=True):
        if text is None and len(names) == 1:
            raise BadField(name, Reason.MISSING)
        if text is not None and not isinstance(text, str):
            raise BadField(name, Reason.NOT_TEXT, what_it_is(text, name))
    return prompt_text("\n\n".join(text for text in texts if text), " + ".join(names))
