"""YAML and JSON (which is YAML) that people write, read so that no word of theirs gets lost."""

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

MOST_KEYS_MERGED = 200
# What PyYAML and the canonical form raise for words that aren't what they claim to be.
SLIPS = (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError)


class BadYaml(ValueError):
    """Words that can't be read; the text says which, and on which line where that is known."""


class Loader(yaml.SafeLoader):
    """Says which words can't be read, and where; PyYAML alone fails on them with whatever Python raises."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except SLIPS as error:
            words = repr(node.value)[:60]
            kind = node.tag.rsplit(":", 1)[-1]
            raise ConstructorError(None, None, f"{words} can't be read as {kind}", node.start_mark) from error

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A key that stands twice is refused: PyYAML alone lets the last one win, unseen."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            named = key.tag, key.value
            if named in lines:
                said = f"the key {key.value[:60]!r} stands twice in one mapping, first in line {lines[named]}"
                raise ComposerError(None, None, said, key.start_mark)
            lines[named] = key.start_mark.line + 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merges within merges grow without bound."""
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" and isinstance(value, yaml.SequenceNode):
                raise ConstructorError(None, None, "merge one mapping at a time, not a list", key.start_mark)
        super().flatten_mapping(node)
        if len(node.value) > MOST_KEYS_MERGED:
            raise ConstructorError(None, None, f"more than {MOST_KEYS_MERGED} keys in one mapping", node.start_mark)


def read_yaml(text: str) -> Any:
    """Raises BadYaml."""
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise BadYaml(f"not YAML{where}: {error.problem or error}") from None
    except RecursionError:
        raise BadYaml("not YAML: nested too deeply") from None
    except (yaml.YAMLError, *SLIPS) as error:
        raise BadYaml(f"not YAML: {error}") from None
