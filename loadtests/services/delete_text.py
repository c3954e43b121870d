import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.utils import timezone

from loadtests import journal
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceStore
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.models import Campaign, TrafficPart, TrafficSet
from loadtests.services.refused import Refused
from loadtests.services.remove_unwanted import ask_removal, remove_unwanted
from loadtests.traffic.outline import outline_lines


def delete_text(*, traffic_set: TrafficSet, by: str, reason: str) -> None:
    """Removes the rows of every part for good; an outline with their hashes, lengths and times stays.

    Raises Refused while the set is in use, or where there is nothing to delete. Outlines are kept first, outside the
    act that lets the rows go; they are removed after it, by this process or, where that fails or the process dies, by a
    later sweep: ``still_kept`` says what is left.
    """
    keep_outlines(traffic_set, by)
    with act():
        let_go(traffic_set, by=by, reason=reason)
    traffic_set.refresh_from_db()
    remove_unwanted()


def let_go(traffic_set: TrafficSet, *, by: str, reason: str, still_in: Sequence[TrafficSet] = ()) -> None:
    """Within an act, and with its outlines kept: nobody may read the rows any more, and their removal is asked for.
    ``still_in`` are the other sets that hold the same text, for the history. Raises as ``delete_text``."""
    # Read within the act: a campaign may have been planned on it since.
    held = refused_or(TrafficSet.objects.get(pk=traffic_set.pk))
    parts = {part.kind: shown(part) for part in held.parts.order_by("kind")}
    ask_removal([one["rows"] for one in parts.values() if not one["shared"]])
    TrafficSet.objects.filter(pk=held.pk).update(text_deleted_at=timezone.now(), text_deleted_by=by)
    journal.record(
        "traffic-text-deleted",
        subject=f"traffic set {held.pk}",
        actor=by,
        reason=reason,
        digest=held.digest,
        parts=parts,
        still_in=[one.pk for one in still_in],
    )


def shown(part: TrafficPart) -> dict[str, Any]:
    """The same rows may be a part of another set whose text is kept: then they stay, and only this set lets go."""
    others = TrafficPart.objects.filter(digest=part.digest, set__text_deleted_at=None).exclude(set=part.set_id)
    return {"rows": part.digest, "outline": part.outline_digest, "shared": others.exists()}


def keep_outlines(traffic_set: TrafficSet, by: str) -> None:
    """The first step of a deletion, outside its act: a part may have a million rows. Raises as ``delete_text``."""
    refused_or(traffic_set)
    missing = list(traffic_set.parts.filter(outline_digest="").order_by("kind"))
    if not missing:
        return
    store = evidence_store()
    outlines = {part.kind: store_outline(part, store) for part in missing}
    with act():
        for part in missing:
            TrafficPart.objects.filter(pk=part.pk).update(outline_digest=outlines[part.kind])
        journal.record(
            "traffic-outlined",
            subject=f"traffic set {traffic_set.pk}",
            actor=by,
            digest=traffic_set.digest,
            outlines=outlines,
        )


def refused_or(traffic_set: TrafficSet) -> TrafficSet:
    refusal = why_not(traffic_set)
    if refusal:
        raise Refused(refusal)
    return traffic_set


def why_not(traffic_set: TrafficSet) -> str | None:
    if traffic_set.text_deleted_at:
        return (
            f"the text of {traffic_set} was deleted on {traffic_set.text_deleted_at:%d %B %Y} "
            f"by {traffic_set.text_deleted_by} already"
        )
    if not holds_text(traffic_set):
        return f"{traffic_set} holds lengths and no text: there is nothing to delete"
    campaign = Campaign.objects.filter(part__set=traffic_set, state__in=Campaign.OPEN).first()
    if campaign:
        return f"{campaign} on {traffic_set} is {campaign.state}: cancel it, or wait for its end"
    return None


def holds_text(traffic_set: TrafficSet) -> bool:
    """Sets that were imported before lengths alone could be have text, all of them."""
    return bool(traffic_set.imported.get("acceptance", {}).get("usable", True))


def store_outline(part: TrafficPart, store: EvidenceStore) -> str:
    try:
        return outlined(part, store)
    except (EvidenceMissing, EvidenceDamaged) as error:
        raise Refused(f"the rows of {part} can't be outlined: {error}") from None
    except OSError as error:
        raise Refused(f"the rows of {part} can't be outlined: the disk failed, {error.strerror}") from None


def outlined(part: TrafficPart, store: EvidenceStore) -> str:
    """Line by line: the rows are never all held."""
    kept = store.file(part.digest)
    try:
        with tempfile.NamedTemporaryFile(dir=store.base, prefix=".outline-") as outline:
            with kept.open("rb") as rows:
                outline.writelines(outline_lines(rows, name=str(part)))
            outline.flush()
            return store.put_file(Path(outline.name))
    finally:
        # Sealed rows lie nowhere but in the store, even where their deletion fails; tuning rows may be read as a donor.
        if part.kind != TrafficPart.Kind.TUNING:
            store.drop_copy(part.digest)
