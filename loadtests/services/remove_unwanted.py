import logging
from collections.abc import Collection

from django.db.models import F, QuerySet
from django.utils import timezone

from loadtests import journal
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.models import Removal, TrafficPart, TrafficSet
from loadtests.naming import Held, NamingLockLost, naming_lock

logger = logging.getLogger(__name__)

ACTOR = "draftproof"
# Someone waits for a page; where an import holds the lock for longer, the next sweep does it.
PATIENCE_S = 5.0


def ask_removal(digests: Collection[str]) -> None:
    """Within the act after which nothing names them. From here on they are removed, whatever becomes of this process:
    by ``remove_unwanted``, now or at a later sweep."""
    Removal.objects.bulk_create([Removal(digest=one) for one in sorted(digests)], ignore_conflicts=True)


def remove_unwanted() -> None:
    """Removes what was asked for and is still there; outside any act, since a store may take its time. What can't be
    removed now stays asked for, with the reason."""
    try:
        with naming_lock(patience_s=PATIENCE_S) as lock:
            if lock is None:
                logger.info("files of an import are being stored: what is to be removed is removed later")
                return
            store = evidence_store()
            # One that fails again and again does not keep the others.
            for wanted in Removal.objects.order_by(F("tried_at").asc(nulls_first=True), "pk"):
                if not removed(wanted, store, lock):
                    return
    except NamingLockLost as error:
        logger.error("what is to be removed is removed later: %s", error)


def removed(wanted: Removal, store: EvidenceStore, lock: Held) -> bool:
    """False where it makes no sense to go on with the next one: the store is away."""
    lock.check()
    try:
        store.forget(wanted.digest)
    except EvidenceUnreachable as error:
        failed(wanted, str(error))
        return not error.passing
    except OSError as error:
        failed(wanted, f"the disk failed, {error.strerror}")
        return True
    with act():
        lock.check()
        Removal.objects.filter(pk=wanted.pk).delete()
        for one in without_rows(wanted.digest):
            journal.record("traffic-text-removed", subject=f"traffic set {one.pk}", actor=ACTOR, digest=one.digest)
    return True


def failed(wanted: Removal, trouble: str) -> None:
    logger.error("evidence %s could not be removed: %s", wanted.digest, trouble)
    Removal.objects.filter(pk=wanted.pk).update(tried_at=timezone.now(), trouble=trouble)


def without_rows(digest: str) -> list[TrafficSet]:
    """The sets whose text was deleted and of which this was the last file. One that a
    set with text needs too is none."""
    sets = TrafficSet.objects.filter(parts__digest=digest).exclude(text_deleted_at=None).defer("statistics")
    return [one for one in sets.order_by("pk") if not (still_kept(one) or held_for_others(one))]


def still_kept(traffic_set: TrafficSet) -> list[Removal]:
    """What is to be removed of the text of a set from which it was deleted, and is still there."""
    if not traffic_set.text_deleted_at:
        return []
    return list(Removal.objects.filter(digest__in=digests_of(traffic_set)).order_by("pk"))


def held_for_others(traffic_set: TrafficSet) -> bool:
    """Whether a set whose text is kept needs a file of this one too: it stays, and is not asked to be removed."""
    others = TrafficPart.objects.filter(digest__in=digests_of(traffic_set), set__text_deleted_at=None)
    return others.exclude(set=traffic_set).exists()


def digests_of(traffic_set: TrafficSet) -> QuerySet[TrafficPart, str]:
    return TrafficPart.objects.filter(set=traffic_set).values_list("digest", flat=True)
