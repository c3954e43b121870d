"""Server addresses as result files hold them: sometimes with a password or a token inside."""

import re

from loadtests.evidence.foreign.values import clean

USER = re.compile(r"(?<=//)[^/?#]*@")


def without_secrets(address: object) -> str | None:
    """The address without user, password, query and fragment; None where it is no text."""
    if not isinstance(address, str):
        return None
    return clean(re.split("[?#]", USER.sub("", address), maxsplit=1)[0]) or None
