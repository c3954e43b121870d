"""What is kept of a set's text, who may delete it, and where else it lies, as the set's page shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from decisions.models import Account
from decisions.rules.who_may import may_delete_text, may_import_traffic
from decisions.selectors.kept_text import others_with_its_text, retention_of, service_of
from decisions.selectors.traffic_imports import services_for_import
from decisions.services.delete_text import relation_to
from decisions.services.people import person
from loadtests.models import TrafficSet
from loadtests.services.delete_text import holds_text
from loadtests.services.remove_unwanted import still_kept


@dataclass(frozen=True)
class Other:
    """Another set that holds the same text or some of it."""

    set: TrafficSet
    why_not_delete: str | None


def privacy_context(found: TrafficSet, account: Account) -> dict[str, Any]:
    service = service_of(found)
    kept = still_kept(found)
    may_give = service is None and may_import_traffic(person(account)) is None
    return {
        "service": service,
        "has_text": holds_text(found),
        "still_kept": kept,
        "last_try": next((one for one in kept if one.trouble), None),
        "retention": None if found.text_deleted_at else retention_of(found),
        "others": [Other(one, why_not_delete(one, account)) for one in others_with_its_text(found)],
        "why_not_delete": why_not_delete(found, account),
        "services_to_give": services_for_import() if may_give else [],
    }


def why_not_delete(traffic_set: TrafficSet, account: Account) -> str | None:
    return may_delete_text(person(account), relation_to(traffic_set))


def chosen(found: TrafficSet, keys: Iterable[str]) -> list[TrafficSet]:
    """Of the others, those that are to be deleted too."""
    wanted = set(keys)
    return [one for one in others_with_its_text(found) if str(one.pk) in wanted]


def not_gone_yet(whole: Iterable[TrafficSet]) -> str:
    """Of sets whose text was just deleted; empty once all of it has left the store."""
    kept = [one for one in whole if still_kept(one)]
    if not kept:
        return ""
    trouble = next((one.trouble for traffic_set in kept for one in still_kept(traffic_set) if one.trouble), "")
    names = ", ".join(one.name for one in kept)
    return (
        f"The text of {names} can’t be used any more, and still lies in the evidence store"
        f"{f': {trouble}' if trouble else ''}. Its removal is tried again every half hour; the set’s page says when it "
        "is gone."
    )


def deleted_words(found: TrafficSet) -> str:
    left = [one.name for one in others_with_its_text(found)]
    said = "The text is deleted. Hashes, lengths, times and all evidence stay."
    if not left:
        return said
    return f"{said} The same text, or some of it, is still in {', '.join(left)}."
