"""What people read in a bundle: the report, the note beside it, the public key."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from django.template.loader import render_to_string

from decisions.models import Checkpoint
from decisions.pages.rows import requirement_row


def public_key_in_pem(der: bytes) -> bytes:
    return load_der_public_key(der).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def readme(key_id: str) -> bytes:
    return render_to_string("bundle/readme.txt", {"key_id": key_id}).encode()


def report(
    decision: dict[str, Any], verdict: dict[str, Any], evidence: dict[str, Any], checkpoint: Checkpoint
) -> bytes:
    """One page for print: no script, no other file, nobody else's host."""
    rows = [requirement_row(one) for one in [*verdict["outcome"], *verdict["guardrails"]]]
    context = {
        "decision": decision,
        "verdict": verdict,
        "rows": [one for one in rows if one.required],
        "trials": len(evidence["trials"]),
        "suite": evidence["behaviour"],
        "policy": {name: policy_words(value) for name, value in sorted((decision["policy"] or {}).items())},
        "checkpoint": checkpoint,
    }
    return render_to_string("bundle/report.html", context).encode()


def policy_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
