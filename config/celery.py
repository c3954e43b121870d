"""The Celery application: control tasks on ``control``, engine work on ``engine.<pool>``."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("draftproof")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
