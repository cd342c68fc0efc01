"""Patterns as in ``.gitignore``, which exclude files of a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A pattern: what it matches, and whether it excludes a file or includes it again."""

    regex: re.Pattern[str]
    brings_back: bool
    directories_only: bool


class IgnoreRules:
    """A list of patterns; the last one that matches a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for rule in map(parse_rule, lines) if rule is not None]

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a path with slashes, relative to the location of the patterns, is excluded."""
        for rule in reversed(self._rules):
            if rule.directories_only and not is_directory:
                continue
            if rule.regex.fullmatch(path):
                return not rule.brings_back
        return False


def parse_rule(line: str) -> Rule | None:
    """Parse one line; return None for blank lines and comments."""
    pattern = _without_trailing_spaces(line.rstrip("\r\n"))
    if not pattern or pattern.startswith("#"):
        return None
    brings_back = pattern.startswith("!")
    if brings_back:
        pattern = pattern[1:]
    directories_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    if not pattern:
        return None
    # A slash anywhere but at the end anchors the pattern to its directory.
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not anchored:
        pattern = f"**/{pattern}"
    return Rule(re.compile(_translate(pattern), re.DOTALL), brings_back, directories_only)


def _without_trailing_spaces(text: str) -> str:
    stripped = text.rstrip(" \t")
    if stripped.endswith("\\") and stripped != text:
        return stripped + " "
    return stripped


def _translate(pattern: str) -> str:
    parts = pattern.split("/")
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            regex += ".+" if last else "(?:.+/)?"
        else:
            regex += _translate_part(part) + ("" if last else "/")
    return regex


def _translate_part(part: str) -> str:
    regex = ""
    index = 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "\\" and index < len(part):
            regex += re.escape(part[index])
            index += 1
        elif char == "[":
            # A "]" right after "[" or "[!" is a member of the class, not its end.
            start = index + 1 if part[index : index + 1] in ("!", "^") else index
            end = part.find("]", start + 1)
            if end < 0:
                regex += re.escape(char)
                continue
            members = part[start:end].replace("\\", "\\\\").replace("[", "\\[").replace("&&", "&\\&")
            regex += f"[{'^/' if start > index else ''}{members}]"
            index = end + 1
        else:
            regex += re.escape(char)
    return regex
