from __future__ import annotations

import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest

from skate.util.annotations import (
    AnnotationType,
    Deprecated,
    DeveloperAPI,
    PublicAPI,
    RayDeprecationWarning,
)


def test_public_api_works_with_and_without_parentheses() -> None:
    @PublicAPI
    def bare() -> int:
        """Return one."""
        return 1

    @PublicAPI(api_group="Numbers")
    def called() -> int:
        """Return two."""
        return 2

    assert (bare(), called()) == (1, 2)
    assert (bare.__doc__, called.__doc__) == ("Return one.", "Return two.")
    assert bare._annotated_type is AnnotationType.PUBLIC_API  # type: ignore[attr-defined]
    assert called._annotated_api_group == "Numbers"  # type: ignore[attr-defined]


@pytest.mark.parametrize("stability", ["alpha", "beta"])
def test_an_unstable_api_says_so_in_its_docstring(stability: Any) -> None:
    @PublicAPI(stability=stability)
    class Thing:
        """Hold something.

        Nothing more.
        """

    lines = inspect.getdoc(Thing).splitlines()  # type: ignore[union-attr]
    assert lines[:3] == ["Hold something.", "", "Nothing more."]
    assert lines[4].startswith(f"**PublicAPI ({stability}):**")


def test_an_unknown_stability_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'shaky'.*stable, beta, alpha"):
        PublicAPI(stability="shaky")  # type: ignore[call-overload]


def test_developer_api_is_noted_even_without_a_docstring() -> None:
    @DeveloperAPI
    def bare() -> None: ...

    @DeveloperAPI(api_group="Inner")
    class Called: ...

    for target in (bare, Called):
        assert "DeveloperAPI" in (target.__doc__ or "")
        assert target._annotated_type is AnnotationType.DEVELOPER_API  # type: ignore[union-attr]


@pytest.mark.parametrize("warning", [True, False])
def test_deprecation_is_noted_and_warns_if_asked(warning: bool) -> None:
    @Deprecated(message="use the new class", warning=warning)
    class Old:
        def __init__(self, value: int) -> None:
            self.value = value

        @Deprecated(message="use the new method", warning=warning)
        def method(self) -> int:
            return self.value + 1

    @Deprecated(message="use the new function", warning=warning)
    def old() -> int:
        """Return three."""
        return 3

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thing = Old(1)
        assert thing.value == 1
        assert thing.method() == 2
        assert old() == 3
    said = [str(warning.message).splitlines()[-1] for warning in seen]
    assert said == (["use the new class", "use the new method", "use the new function"] if warning else [])
    assert all(item.category is RayDeprecationWarning and item.filename == __file__ for item in seen)
    assert "use the new class" in (Old.__doc__ or "")
    assert "use the new method" in (Old.method.__doc__ or "")
    assert "Return three." in (old.__doc__ or "")
    assert "use the new function" in (old.__doc__ or "")
    assert old.__name__ == "old"


def test_deprecated_works_without_parentheses() -> None:
    @Deprecated
    def old() -> int:
        return 1

    assert old() == 1
    assert "DEPRECATED" in (old.__doc__ or "")


SCRIPT = """
from skate.util.annotations import Deprecated

@Deprecated(message="gone-soon", warning=True)
def old():
    pass

for _ in range(3):
    old()
"""


@pytest.mark.parametrize(("filters", "times"), [("default", 1), ("ignore::DeprecationWarning", 0)])
def test_a_script_is_warned_once_and_can_switch_it_off(filters: str, times: int) -> None:
    result = subprocess.run(
        [sys.executable, "-W", filters, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert result.stderr.count("gone-soon") == times
