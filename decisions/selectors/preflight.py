"""What the preflight says of a brief, with what this machine knows of checkpoints and of the traffic's file."""

from pathlib import Path

from django.conf import settings

from decisions.rules.brief import Brief
from decisions.rules.findings import Finding
from decisions.rules.flagged import preflight
from decisions.rules.preflight import Known
from loadtests.checkpoints import recorded_facts
from loadtests.models import TrafficSet


def known_here(traffic_set: TrafficSet | None = None) -> Known:
    unread = traffic_set.imported.get("unread_fields", {}) if traffic_set else {}
    return Known(recorded_facts(Path(settings.MODELS_DIR)), unread)


def findings_of_brief(brief: Brief, traffic_set: TrafficSet | None = None) -> list[Finding]:
    return preflight(brief, known_here(traffic_set))
