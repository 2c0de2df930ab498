"""Lists of processors."""

import pytest

from runners.system import cores_in, cores_text


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("1,3,5", (1, 3, 5)),
        ("0-2,5,7-8", (0, 1, 2, 5, 7, 8)),
        ("0-1,4-5", (0, 1, 4, 5)),
    ],
)
def test_lists_are_those_of_the_kernel_both_ways(text: str, cores: tuple[int, ...]) -> None:
    assert cores_in(text) == cores
    assert cores_text(reversed(cores)) == text


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "0,,1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of processors"):
        cores_in(text)
