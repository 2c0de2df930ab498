"""What file names of wheels say."""

import pytest

from orchestrator.environments.wheelnames import WheelName


@pytest.mark.parametrize(
    ("tags", "python", "serves"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "3.11", True),
        ("cp311-cp311-manylinux_2_28_x86_64", "3.12", False),
        ("cp313-cp313t-manylinux_2_28_x86_64", "3.13", False),
        ("cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", "3.11", True),
        ("cp312-abi3-manylinux_2_17_x86_64", "3.11", False),
        ("py3-none-any", "3.9", True),
        ("py2.py3-none-any", "3.9", True),
        ("py2-none-any", "3.9", False),
        ("py310-none-any", "3.9", False),
        ("py3-none-manylinux2014_x86_64", "3.9", True),
        ("py3-none-manylinux_2_39_x86_64", "3.11", False),
        ("py3-none-manylinux2014_aarch64", "3.11", False),
        ("py3-none-linux_x86_64", "3.11", True),
        ("py3-none-win_amd64", "3.11", False),
        ("pp310-pypy310_pp73-manylinux_2_28_x86_64", "3.10", False),
    ],
)
def test_which_python_and_platform_a_wheel_serves(tags: str, python: str, serves: bool) -> None:
    wheel = WheelName.parse(f"tiny-1.0-{tags}.whl")
    assert wheel is not None
    assert wheel.serves(python, "manylinux_2_28_x86_64") is serves


def test_a_name_is_taken_apart() -> None:
    assert WheelName.parse("Tiny_Pkg-1.0+cu116-1local-py2.py3-none-any.whl") == WheelName(
        "tiny-pkg", "1.0+cu116", ("py2", "py3"), ("none",), ("any",)
    )


@pytest.mark.parametrize("name", ["tiny-1.0.tar.gz", "tiny-1.0.whl", "a file"])
def test_what_is_no_wheel(name: str) -> None:
    assert WheelName.parse(name) is None
