"""Syntax of node labels, and of the selectors that match them.

Each check returns None for a valid value and otherwise a sentence that describes the problem, so that the caller
chooses the exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Plain strings: `re` compiles them at the first use, and most programs have no labels.
_NAME = r"[a-zA-Z0-9]([a-zA-Z0-9\-_.]{0,61}[a-zA-Z0-9])?"
_DNS_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_PREFIX_LENGTH = 253

_NAME_RULE = "Use 1 to 63 letters, digits, '-', '_' and '.', of which the first and the last one are letters or digits."


def label_key_problem(key: Any) -> str | None:
    """Return the problem with `key` as the name of a label, or None."""
    if not isinstance(key, str):
        return f"The key is not string type: label key {key!r} is a {type(key).__name__}."
    prefix, slash, name = key.rpartition("/")
    if slash and not _is_prefix(prefix):
        return (
            f"Invalid label key prefix {prefix!r}. Use a DNS name, such as 'example.com', of at most {_PREFIX_LENGTH} "
            "characters."
        )
    if not re.fullmatch(_NAME, name):
        return f"Invalid label key name {name!r}. {_NAME_RULE}"
    return None


def label_value_problem(value: Any) -> str | None:
    """Return the problem with `value` as the value of a label, or None. The empty string is a value."""
    if not isinstance(value, str):
        return f"The value is not string type: label value {value!r} is a {type(value).__name__}."
    if value and not re.fullmatch(_NAME, value):
        return f"Invalid label key value {value!r}. {_NAME_RULE}"
    return None


def selector_value_problem(selector: Any) -> str | None:
    """Return the problem with a selector such as "A100", "!spot", "in(a, b)", "!in(a, b)", or None."""
    if not isinstance(selector, str):
        return (
            f"Invalid label selector value {selector!r} ({type(selector).__name__}): it must be a string, such as "
            "'a', '!a', 'in(a, b)' or '!in(a, b)'."
        )
    if all(value == "" or re.fullmatch(_NAME, value) for value in _selected_values(selector)):
        return None
    return (
        f"Invalid label selector value {selector!r}. Write 'a', '!a', 'in(a, b)' or '!in(a, b)', with values of labels "
        f"in place of a and b. {_NAME_RULE}"
    )


def label_selector_problem(selector: Any) -> str | None:
    """Return the problem with a mapping of label keys to selector values, or None."""
    if selector is None:
        return None
    if not isinstance(selector, dict):
        return f"A label selector must be a dictionary, got {selector!r} ({type(selector).__name__})."
    for key, value in selector.items():
        problem = label_key_problem(key) or selector_value_problem(value)
        if problem:
            return problem
    return None


def fallback_strategy_problem(strategy: Any) -> str | None:
    """Return the problem with a list of alternative label selectors, or None."""
    if strategy is None:
        return None
    for alternative in strategy:
        if not isinstance(alternative, dict):
            return f"fallback_strategy has {alternative!r}; each of its items must be a dictionary."
        if not alternative:
            return "fallback_strategy has an empty dictionary: leave it out."
        for name, value in alternative.items():
            if name != "label_selector":
                return f"Unsupported option found in fallback_strategy: {name!r}. It takes only 'label_selector'."
            if not isinstance(value, dict):
                return f"fallback_strategy has {value!r} as {name!r}, which must be a dictionary."
            problem = label_selector_problem(value)
            if problem:
                return problem
    return None


def selector_matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every entry of a selector: `v`, `!v`, `in(a, b)` or `!in(a, b)`.

    A negated entry also matches labels without the key. `in()`, which users cannot write, matches only labels without
    the key, as `DoesNotExist` does; so `!in()` is `Exists`.

    >>> selector_matches({"zone": "in(a, b)", "spot": "!true"}, {"zone": "a"})
    True
    """
    return all(_matches(wanted, labels.get(key)) for key, wanted in selector.items())


def _matches(wanted: str, value: str | None) -> bool:
    operand = wanted.removeprefix("!")
    if operand == "in()":
        is_named = value is None
    elif operand.startswith("in(") and operand.endswith(")"):
        is_named = value in [choice.strip() for choice in operand[3:-1].split(",")]
    else:
        is_named = value == operand
    return is_named != wanted.startswith("!")


def _selected_values(selector: str) -> list[str]:
    """Return the values in a selector; an empty `in()` gives a value that no label may have."""
    operand = selector.removeprefix("!")
    if operand.startswith("in(") and operand.endswith(")"):
        values = [value.strip() for value in operand[3:-1].split(",")]
        return [value or "()" for value in values]
    return [operand]


def _is_prefix(prefix: str) -> bool:
    return len(prefix) <= _PREFIX_LENGTH and all(re.fullmatch(_DNS_LABEL, part) for part in prefix.split("."))
