"""Credentials in what others wrote and in what people typed: taken out before anything is kept or shown. Pure.

What looks like one is taken for one. A text that names no password loses nothing but, at worst, a word.
"""

import re
from collections.abc import Iterable, Iterator

HIDDEN = "[hidden]"
# Before @ in an address: a name, or a name and a password, which may hold what an address may not. A port is neither.
USER = re.compile(r"(?<=//)(?:[^\s/?#@\"'<>\[]*:(?!\d{1,5}(?:[/?#\s]|$))[^\s@\"'<>]*|[^\s/?#@\"'<>]*)@")
# The same where an address has no scheme, and is known to be one.
BARE_USER = re.compile(r"^[^/?#]*@")
# Names of fields, of parameters in an address, of headers and of options.
NAME = (
    r"(?:[\w.-]*(?:api[_-]?key|secret|passw(?:or)?d|passphrase|pwd|credentials?|access[_-]?key(?:[_-]?id)?"
    r"|private[_-]?key|signature|auth|authorization|cookie)"
    r"|(?:[\w.-]*(?:access|api|auth|bearer|hf|hub|id|private|refresh|security|session|user)[_-]?)?token|sig)"
)
# Quoted, be it within a quoted text, or one word; one that was cut off has no second quote.
QUOTED = r"\\?\"[^\"]*\"?|'[^']*'?"
WORD = r"\[hidden\]|(?:(?:basic|bearer|digest|token)\s+)?[^\s\"'\\&;,<>)\]}]+"
NAMED = re.compile(rf"(?<![\w.-])({NAME}[\\\"']*\s*[=:]\s*)(?:{QUOTED}|{WORD})", re.IGNORECASE)
OPTION = re.compile(rf"(?<![\w-])(--?{NAME}[\s=]+)(?:{QUOTED}|(?!-)[^\s\"']+)", re.IGNORECASE)
# Too short a name to be looked for outside of an address.
KEY_PARAMETER = re.compile(r"(?<=[?&])(key=)[^\s\"'&#]+", re.IGNORECASE)
SECRET_OPTION = re.compile(rf"--?{NAME}", re.IGNORECASE)
SECRET_NAME = re.compile(NAME, re.IGNORECASE)
# A word after "bearer" is a word; what holds a digit or a sign is a token.
BEARER = re.compile(r"\b(bearer\s+)(?=\S*[\d._~+/=-])[\w.~+/=-]{8,}", re.IGNORECASE)
# What none of these patterns can do without; most texts hold none of them.
SIGNS = re.compile(r"//|key|token|secret|pass|pwd|credential|sig|auth|cookie|bearer", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """The text with ``[hidden]`` for the value of whatever is named like a key, a token or a password, and its
    addresses without user and password."""
    if not SIGNS.search(text):
        return text
    text = without_users(text)
    for pattern in (KEY_PARAMETER, NAMED, OPTION, BEARER):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def without_users(text: str) -> str:
    """A password may hold an @, and then ends at the last one."""
    while (found := USER.sub("", text)) != text:
        text = found
    return text


def address_without_credentials(address: str) -> str:
    """An address without user, password, query and fragment."""
    whole = without_users(address)
    return re.split("[?#]", whole if "//" in whole else BARE_USER.sub("", whole), maxsplit=1)[0]


def command_without_credentials(command: Iterable[str]) -> Iterator[str]:
    """A command's arguments one by one: a value may be the one after its option."""
    hidden = False
    for argument in command:
        yield HIDDEN if hidden else without_credentials(argument)
        hidden = bool(SECRET_OPTION.fullmatch(argument))


def names_a_credential(name: str) -> bool:
    return bool(SECRET_NAME.fullmatch(name))
