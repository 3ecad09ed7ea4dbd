"""What `natgrad speech lm` does, and what it refuses before it has worked for long."""

from pathlib import Path

import pytest

from natgrad.recipes.language_tool import write_language_model


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("YES NO\nNO NO\n")
    return path


def test_missing_text_to_judge_by_is_found_out_before_a_model_is_made(text: Path) -> None:
    out = text.parent / "lm.arpa"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_language_model(text, out, held_out=text.parent / "nowhere", small_text_discounts=True)
    assert not out.exists()


def test_empty_vocabulary_is_no_fault_of_a_lexicon_that_was_not_given(text: Path) -> None:
    out = text.parent / "lm.arpa"
    with pytest.raises(ValueError, match="the vocabulary is empty"):
        write_language_model(text, out, vocabulary=0, small_text_discounts=True)


def test_lexicon_without_a_word_of_the_text_is_named(text: Path) -> None:
    lexicon = text.parent / "lexicon.txt"
    lexicon.write_text("yes y eh s\n")
    with pytest.raises(ValueError, match=r"no word of .*text is in the lexicon .*lexicon.txt"):
        write_language_model(text, text.parent / "lm.arpa", words_in=lexicon)
