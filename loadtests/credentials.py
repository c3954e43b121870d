"""Credentials in what others wrote and in what people typed: taken out before anything is kept or shown. Pure.

What looks like one is taken for one. A text that names no password loses nothing but, at worst, a word.
"""

import re
from collections.abc import Iterable, Iterator

HIDDEN = "[hidden]"
# What is hidden makes a text shorter, so more of it is looked at than is kept.
ROOM = 10
# What an address, with a user before it, stands in: a password may hold what an address may not.
UNBROKEN = re.compile(r"[^\s\"'<>]+")
BREAK = re.compile(r"[\s\"'<>]")
SEGMENT = re.compile(r"[^/?#@]*+")
PORT = re.compile(r"\d{1,5}[/?#]")
# The same where an address has no scheme, and is known to be one.
BARE_USER = re.compile(r"^[^/?#]*@")

# The words that a name is made of: of fields, of parameters in an address, of headers and of options.
RUN = re.compile(r"[\w.-]+")
WORDS = re.compile(r"[A-Z]?[a-z]++|[A-Z]++(?![a-z])|[A-Z]")
# What the last word of a credential's name ends with.
SECRETS = (
    *("secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "credential", "credentials"),
    *("signature", "auth", "authorization", "cookie", "jwt"),
    *("apikey", "apikeys", "accesskey", "authkey", "privatekey", "secretkey", "sharedkey", "subscriptionkey"),
)
# Before "key": what sorts or finds something.
HARMLESS_KEYS = (
    *("attention", "cache", "dict", "foreign", "group", "hash", "index", "join", "kv", "label", "lookup", "metric"),
    *("partition", "prefix", "primary", "public", "routing", "row", "shard", "sort"),
)
# Before "token", which most often is one of a text.
TOKENS = (
    *("access", "account", "api", "auth", "bearer", "bot", "client", "csrf", "deploy", "device", "github", "gitlab"),
    *("hf", "hub", "id", "jwt", "login", "openai", "private", "refresh", "sas", "secret", "security", "service"),
    *("session", "subscription", "user"),
)
# A name before its value. Possessive, and from the beginning of a run alone: a text is gone through once.
NAMED = re.compile(r"(?<![\w.-])([\w.-]++)(?:([\\\"']*+\s*+[=:]\s*+)|\s++)")
# Quoted, be it within a quoted text, or one word; one that was cut off has no second quote.
QUOTED = r"\\?\"[^\"]*+\"?|'[^']*+'?"
WORD = r"\[hidden\]|(?:(?:basic|bearer|digest|token)\s++)?[^\s\"'\\&;,<>)\]}]++"
VALUE = re.compile(rf"{QUOTED}|{WORD}", re.IGNORECASE)
OPTION_VALUE = re.compile(rf"{QUOTED}|(?!-)[^\s\"']++")
# Too short a name to be looked for outside of an address.
KEY_PARAMETER = re.compile(r"(?<=[?&])(key=)[^\s\"'&#]+", re.IGNORECASE)
# A word after "bearer" is a word; what holds a digit or a sign is a token.
BEARER = re.compile(r"\b(bearer\s+)(?=\S*[\d._~+/=-])[\w.~+/=-]{8,}", re.IGNORECASE)
# Keys that say themselves what they are.
KEY = re.compile(r"(?<![\w-])()sk-(?:(?:ant|proj)-[\w-]+|(?=[\w-]*\d)[\w-]{8,})")
# What none of these patterns can do without; most texts hold none of them.
SIGNS = re.compile(r"//|key|token|secret|pass|pwd|credential|sig|auth|cookie|bearer|jwt|sk-", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """The text with ``[hidden]`` for the value of whatever is named like a key, a token or a password, and its
    addresses without user and password. Takes time in proportion to the text."""
    if not SIGNS.search(text):
        return text
    text = KEY_PARAMETER.sub(rf"\1{HIDDEN}", without_users(text))
    text = "".join(without_named(text))
    for pattern in (BEARER, KEY):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def beginning_without_credentials(text: str, length: int) -> str:
    """The first ``length`` characters of what is left of a text, of which no more is gone through than that takes. What
    tells a credential may lie behind the end of that, as the @ after a password does: so the word that goes on there is
    hidden, unless no text so far names a credential."""
    looked_at = text[: ROOM * length]
    if len(looked_at) < len(text) and SIGNS.search(looked_at):
        last = BREAK.split(looked_at)[-1]
        looked_at = looked_at[: len(looked_at) - len(last)] + HIDDEN
    return without_credentials(looked_at)[:length]


def without_named(text: str) -> Iterator[str]:
    kept = at = 0
    while found := NAMED.search(text, at):
        at = found.end()
        name, sign = found.groups()
        # Without a sign between them, only an option has a value.
        if not names_a_credential(name) or (sign is None and not name.startswith("-")):
            continue
        if value := (OPTION_VALUE if sign is None else VALUE).match(text, at):
            yield text[kept:at] + HIDDEN
            kept = at = value.end()
    yield text[kept:]


def without_users(text: str) -> str:
    return UNBROKEN.sub(lambda found: without_user(found[0]), text) if "@" in text else text


def without_user(text: str) -> str:
    """Without what stands after // and before @: a name, or a name and a password. A password may hold an @, and then
    ends at the last one; a port is none."""
    left, kept, at, sign = list[str](), 0, text.find("//") + 2, -1
    while at > 1:
        sign = text.find("@", at) if sign < at else sign
        if sign < 0:
            break
        if ends_a_user(text, at, sign):
            left.append(text[kept:at])
            kept = at = sign + 1
        elif text.startswith("/", at):
            at += 1
        else:
            at = text.find("//", at) + 2
    return "".join([*left, text[kept:]])


def ends_a_user(text: str, begin: int, sign: int) -> bool:
    """Whether what stands from ``begin`` to the next @ is a user."""
    segment = SEGMENT.match(text, begin)
    assert segment
    name, colon, rest = segment[0].partition("[")[0].partition(":")
    return segment.end() == sign or (bool(colon) and (":" in rest or not PORT.match(text, begin + len(name) + 1)))


def address_without_credentials(address: str) -> str:
    """An address without user, password, query and fragment."""
    whole = without_users(address)
    return re.split("[?#]", whole if "//" in whole else BARE_USER.sub("", whole), maxsplit=1)[0]


def command_without_credentials(command: Iterable[str]) -> Iterator[str]:
    """A command's arguments one by one: a value may be the one after its option."""
    hidden = False
    for argument in command:
        yield HIDDEN if hidden else without_credentials(argument)
        hidden = argument.startswith("-") and names_a_credential(argument)


def names_a_credential(name: str) -> bool:
    """By its last words: ``secret_key`` and ``secretKey`` name one, ``keyboard`` and ``max_tokens`` name none."""
    if not RUN.fullmatch(name):
        return False
    words = [one.lower() for one in WORDS.findall(name)]
    if words[-2:] == ["key", "id"]:
        words.pop()
    last = words[-1] if words else ""
    if last == "key":
        return len(words) > 1 and words[-2] not in HARMLESS_KEYS
    if last == "keys":
        return words[-2:-1] in (["access"], ["api"], ["secret"])
    if last == "token":
        return len(words) == 1 or words[-2] in TOKENS
    return last == "sig" == "".join(words) or last.endswith((*SECRETS, *(f"{one}token" for one in TOKENS)))
