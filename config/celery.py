"""The Celery application: control tasks on ``control``, engine work on ``engine.<pool>``."""

import os
from typing import Any

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("draftproof")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@signals.worker_init.connect
def require_evidence_store(**_: Any) -> None:
    """A worker that could keep nothing takes up nothing."""
    from django.core.exceptions import ImproperlyConfigured

    from loadtests import checks

    try:
        checks.require_evidence_store()
    except ImproperlyConfigured as error:
        # Celery only logs other errors of its signals.
        raise SystemExit(f"the worker does not start: {error}") from None
