from pathlib import Path

import pytest

from natgrad.speech.lexicon.files import read_cmudict
from natgrad.speech.lexicon.spelling import spelling_variants

SHARED = Path(__file__).parents[3] / "shared"

AMERICAN = {
    "HONOUR": "HONOR",
    "FAVOURITE": "FAVORITE",
    "NEIGHBOUR'S": "NEIGHBOR'S",
    "REALISE": "REALIZE",
    "RECOGNISING": "RECOGNIZING",
    "CIVILISATION": "CIVILIZATION",
    "PARALYSED": "PARALYZED",
    "TRAVELLED": "TRAVELED",
    "MARVELLOUS": "MARVELOUS",
    "FULNESS": "FULLNESS",
    "CENTRE": "CENTER",
    "SOMBRE": "SOMBER",
    "PRETENCE": "PRETENSE",
    "PRACTISING": "PRACTICING",
    "CATALOGUES": "CATALOGS",
    "CONNEXION": "CONNECTION",
    "PROGRAMMES": "PROGRAMS",
    "ENQUIRY": "INQUIRY",
    "MOULDED": "MOLDED",
    "PLOUGHED": "PLOWED",
    "FOETUS": "FETUS",
    "AEONS": "EONS",
    "SOLDIERS'": "SOLDIERS",
    "EXPREST": "EXPRESSED",
}


@pytest.mark.parametrize(("british", "american"), AMERICAN.items())
def test_an_american_spelling_is_among_the_variants(british: str, american: str) -> None:
    assert american in spelling_variants(british)


@pytest.mark.parametrize("word", ["HOUR", "FOUR", "COURSE", "JOURNEY", "WISE", "RISE", "TABLE", ""])
def test_words_that_are_no_british_spellings_have_no_variants(word: str) -> None:
    assert spelling_variants(word) == []


def test_no_word_is_its_own_variant_and_none_is_there_twice() -> None:
    for word in (*AMERICAN, "COLOUROUR", "LABOURSAVOURS"):
        variants = spelling_variants(word)
        assert not {word, ""} & set(variants)
        assert len(set(variants)) == len(variants)


def test_every_place_is_changed_by_itself_and_all_together() -> None:
    assert spelling_variants("LABOURSAVOURS") == ["LABORSAVOURS", "LABOURSAVORS", "LABORSAVORS"]


@pytest.mark.skipif(not (SHARED / "data/cmudict").exists(), reason="needs ../shared/data/cmudict")
def test_the_first_variant_that_the_cmu_dictionary_has_is_the_american_spelling() -> None:
    dictionary = read_cmudict(SHARED / "data/cmudict/cmudict.txt")
    for british, american in AMERICAN.items():
        known = [variant for variant in spelling_variants(british) if variant in dictionary]
        assert known[:1] == ([american] if american in dictionary else []), british
