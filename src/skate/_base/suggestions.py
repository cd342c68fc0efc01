"""Suggestions for misspelled names, for error messages."""

from __future__ import annotations

from collections.abc import Iterable

ALIKE = 0.6  # the least similarity of a suggestion, from 0 to 1


def closest(word: str, words: Iterable[str], *, alike: float = ALIKE) -> str | None:
    """Return the word most similar to `word`, or None if none is similar.

    >>> closest("num_cpu", ["num_cpus", "num_gpus", "name"])
    'num_cpus'
    """
    return next(iter(nearest(word, words, count=1, alike=alike)), None)


def nearest(word: str, words: Iterable[str], *, count: int = 3, alike: float = ALIKE) -> list[str]:
    """Return the words most similar to `word`, the most similar first.

    >>> nearest("num_cpu", ["num_cpus", "num_gpus", "name"])
    ['num_cpus', 'num_gpus']
    """
    import difflib  # used for errors only

    return difflib.get_close_matches(word, list(words), count, alike)


def did_you_mean(word: str, words: Iterable[str], *, alike: float = ALIKE) -> str:
    """Return a sentence, after a space, that suggests the word most similar to `word`; "" if none is similar.

    >>> did_you_mean("num_cpu", ["num_cpus", "num_gpus", "name"])
    " Did you mean 'num_cpus'?"
    >>> did_you_mean("color", ["num_cpus", "num_gpus", "name"])
    ''
    """
    found = closest(word, words, alike=alike)
    return "" if found is None else f" Did you mean {found!r}?"
