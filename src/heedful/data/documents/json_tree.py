"""JSON with positions: a tree of values that knows where each of them stands."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


@dataclass
class Node:
    """A value of a JSON text.

    Attributes:
        start: its start in characters.
        end: its end.
        value: the value of a string, number or constant; None for objects and arrays.
        members: the members of an object in order; of an array, with numbers as keys.
        starts: the start of each member's key.
        is_object: whether it is an object.
    """

    start: int
    end: int = 0
    value: Any = None
    members: dict[str, "Node"] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    is_object: bool = False

    def text(self, key: str) -> str:
        """The string of a member; empty if there is none."""
        found = self.members.get(key)
        return found.value if found is not None and isinstance(found.value, str) else ""

    def child(self, key: str) -> "Node | None":
        """A member that is an object; None if there is none."""
        found = self.members.get(key)
        return found if found is not None and found.is_object else None


def read_tree(text: str) -> Node:
    """Read a valid JSON text.

    Raises:
        KeyError: an object has a key twice.
    """
    root: Node | None = None
    opened: list[Node] = []
    key, key_start = "", 0
    expects_key = False
    for found in TOKEN.finditer(text):
        token = found[0]
        if token[0] == '"' and expects_key:
            key, key_start = json.loads(token, strict=False), found.start()
            expects_key = False
        elif token in ",:":
            expects_key = token == "," and opened[-1].is_object
        elif token in "}]":
            opened.pop().end = found.end()
            expects_key = False
        else:
            node = Node(found.start(), found.end(), is_object=token == "{")
            if opened:
                own = opened[-1]
                place = key if own.is_object else str(len(own.members))
                if place in own.members:
                    raise KeyError(place)
                own.members[place], own.starts[place] = node, key_start
            root = root or node
            if token in "{[":
                opened.append(node)
                expects_key = token == "{"
            else:
                node.value = json.loads(token, strict=False, parse_int=str)
    assert root is not None
    return root
