"""What the serving stack reads of a route: the speculative setting in force, or none."""

from typing import Any

from django.utils import timezone

from decisions.models import Release, Route

SCHEMA = "draftproof.route-configuration/1"


def release_in_force(route: Route) -> Release | None:
    return (
        Release.objects.in_force(timezone.now())
        .filter(route=route)
        .select_related("configuration", "fallback", "signature", "revision", "route__service")
        .first()
    )


def route_configuration(route: Route) -> dict[str, Any]:
    """The answer to a gateway. Nothing in force means the baseline: speculation off."""
    release = release_in_force(route)
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "service": route.service.slug,
        "route": route.slug,
        "speculation": "on" if release else "off",
        "speculative": None,
        "configuration": None,
        "fallback": None,
        "decision": None,
        "tested_range": None,
        "released_at": None,
        "expires_at": None,
    }
    if release is None:
        return answer
    document = release.configuration.document
    speculative = document.speculative
    return answer | {
        "speculative": speculative.model_dump(mode="json", exclude_none=True) if speculative else None,
        "configuration": {
            "digest": release.configuration.digest,
            "document": document.model_dump(mode="json", by_alias=True),
        },
        "fallback": {"digest": release.fallback.digest, "speculative": None},
        "decision": {
            "id": release.signature_id,
            "digest": release.signature.digest,
            "brief": release.revision.digest,
            "signed_by": release.signature.signer_name,
            "signed_at": release.signature.signed_at.isoformat(),
            "meaning": release.signature.meaning,
        },
        "tested_range": release.tested_range,
        "released_at": release.released_at.isoformat(),
        "expires_at": release.expires_at.isoformat(),
    }
