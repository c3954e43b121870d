from django.utils import timezone

from loadtests import journal, queue
from loadtests.journal import act
from loadtests.models import Boot
from loadtests.services.end_campaign import end_if_complete


def finish_boot(*, boot: Boot, died: bool, reason: str, log_digest: str, log_tail: str) -> bool:
    """Ends a boot whose trials all have their evidence. An engine that died is a result and ends here too."""
    with act():
        moved = Boot.objects.filter(pk=boot.pk, state=Boot.State.RUNNING, worker=boot.worker).update(
            state=Boot.State.FINISHED,
            died=died,
            reason=reason,
            log_digest=log_digest,
            log_tail=log_tail,
            stopped_at=timezone.now(),
        )
        if not moved:
            return False
        journal.record(
            "boot-finished", subject=f"boot {boot.pk}", actor=boot.worker, died=died, reason=reason, log=log_digest
        )
        end_if_complete(campaign=boot.campaign, actor=boot.worker)
        queue.request_boot(boot.pool)
    return True
