"""The traffic set that a link to a form names in its query string."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404

from decisions.selectors.traffic import traffic_sets
from loadtests.models import TrafficSet


def traffic_asked_for(key: str) -> TrafficSet | None:
    """None where the link names none; a number that no set has is no page."""
    if not key:
        return None
    if not (key.isascii() and key.isdecimal() and len(key) < 10):
        raise Http404("there is no such traffic set")
    return get_object_or_404(traffic_sets(), pk=int(key))
