"""From what people wrote down about redaction to a redaction that can be applied."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from loadtests.traffic.importers import ImportRefused, Redaction
from loadtests.traffic.importers.redaction import Redact


def redaction_of(pairs: Sequence[tuple[str, str]], callable_path: str | None) -> Redaction | None:
    """None where there is nothing to take out; raises ImportRefused for what can't be used.

    ``callable_path`` names a function of text to text as ``package.module:function``.
    """
    if not pairs and not callable_path:
        return None
    try:
        return Redaction(tuple(pairs), callable_path or None, loaded(callable_path) if callable_path else None)
    except ValueError as error:
        raise ImportRefused(f"redaction, {error}") from None


def redaction_of_service(redactions: Sequence[Mapping[str, str]], callable_path: str | None) -> Redaction | None:
    """As a service keeps them: [{"pattern": …, "replacement": …}]."""
    return redaction_of([(one["pattern"], one["replacement"]) for one in redactions], callable_path)


def loaded(path: str) -> Redact:
    module, _, name = path.partition(":")
    if not module or not name:
        raise ImportRefused(f"the redaction {path!r} must be written as package.module:function")
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ImportRefused(f"the redaction {path} can't be loaded: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise ImportRefused(f"the redaction {path} is no function")
    return found


def look_in_working_directory() -> None:
    """As ``python -m`` does: a console script has its own directory on the path instead."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
