"""YAML texts of strangers: bounded depth, bounded length with aliases written out."""

from dataclasses import dataclass

import pytest

from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.io.yaml_files import LARGEST, build, parse


def test_aliases_and_merged_mappings_are_read() -> None:
    text = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}"
    assert parse(text) == {
        "a": {"x": 1, "y": [2, 3]},
        "b": {"x": 1, "y": [2, 3]},
        "c": {"x": 4, "y": [2, 3]},
    }


def test_aliases_that_make_a_small_text_huge_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ArgumentError, match=f"more than {LARGEST} values"):
        parse("\n".join(lines))


@pytest.mark.parametrize("text", ["a: &a [1, *a]", "a: *b"])
def test_aliases_without_a_finished_value_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="is inside its own value, or has none"):
        parse(text)


def test_deep_texts_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lists inside each other"):
        parse("[" * 10_000)


@dataclass(frozen=True)
class Rate:
    rate: float


def test_a_number_beyond_floats_is_refused() -> None:
    assert build(Rate, parse("rate: 1e-4")) == Rate(1e-4)
    with pytest.raises(ArgumentError, match=r"Rate\.rate is 9{60}, expected a number"):
        build(Rate, parse(f"rate: {'9' * 400}"))


def test_a_field_whose_name_is_not_a_text_is_unknown() -> None:
    """Found by the fuzzer: the search for the nearest name failed on a number."""

    @dataclass(frozen=True)
    class Fields:
        x: float = 0.0

    for text in ("1: 2", "0.5: 2", "null: 2", "true: 2"):
        with pytest.raises(UnknownNameError, match="unknown field of Fields"):
            build(Fields, parse(text))
