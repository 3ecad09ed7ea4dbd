from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.symbols import EPSILON, Symbols

names = st.lists(st.text(min_size=1).filter(lambda name: name != EPSILON), unique=True)


@given(names)
def test_numbers_and_names_are_each_others_inverse(given_names: list[str]) -> None:
    symbols = Symbols(given_names)
    assert list(symbols) == given_names
    assert [symbols.name(symbols.number(name)) for name in given_names] == given_names
    assert [symbols.number(name) for name in symbols] == list(range(1, len(symbols)))


def test_number_0_is_epsilon() -> None:
    assert Symbols([]).name(0) == EPSILON
    assert Symbols([]).number(EPSILON) == 0


@pytest.mark.parametrize("twice", [["A", "B", "A"], ["A", EPSILON]])
def test_name_that_is_there_twice_is_refused_by_name(twice: list[str]) -> None:
    with pytest.raises(ValueError, match=f"'{twice[-1]}' is there twice"):
        Symbols(twice)


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="MAYBE"):
        Symbols(["YES"]).number("MAYBE")


def test_symbols_are_equal_by_their_names_in_order_also_in_another_process() -> None:
    symbols = Symbols(["A", "B"])
    assert pickle.loads(pickle.dumps(symbols)) == symbols
    assert hash(Symbols(["A", "B"])) == hash(symbols)
    assert Symbols(["B", "A"]) != symbols
