import pytest

from natgrad.speech.lexicon.grapheme_to_phoneme import GraphemeToPhoneme, train_g2p
from natgrad.speech.lexicon.lexicon import Lexicon, LexiconError, Pronunciation
from natgrad.speech.lexicon.pronounce import Source, pronounce

SPOKEN = [
    ("HONOR", "AA N ER"),
    ("HUM", "HH AH M"),
    ("HUMS", "HH AH M Z"),
    ("RUN", "R AH N"),
    ("RUNS", "R AH N Z"),
    ("NUMB", "N AH M"),
    ("SO", "S OW"),
    ("NO", "N OW"),
    ("READ", "R IY D"),
    ("READ", "R EH D"),
    ("ROAD", "R OW D"),
    ("DEAR", "D IH R"),
    ("MUD", "M AH D"),
    ("MADE", "M EY D"),
    ("NEED", "N IY D"),
    ("BUS", "B AH S"),
    ("SOB", "S AA B"),
    ("SOBBED", "S AA B D"),
    ("DIMMED", "D IH M D"),
    ("RAMMED", "R AE M D"),
]


@pytest.fixture(scope="module")
def dictionary() -> Lexicon:
    return Lexicon([Pronunciation(word, tuple(said.split())) for word, said in SPOKEN])


@pytest.fixture(scope="module")
def model(dictionary: Lexicon) -> GraphemeToPhoneme:
    return train_g2p(dictionary)


def test_each_word_is_found_by_the_surest_means(
    dictionary: Lexicon, model: GraphemeToPhoneme
) -> None:
    words = ["READ", "HONOUR", "HUMMED", "HUM'S", "HONOUR'S", "BORD", "BORD'S", "HUM"]
    lexicon, report = pronounce(words, dictionary, model)
    assert report.sources == {
        "READ": Source("dictionary"),
        "HUM": Source("dictionary"),
        "HONOUR": Source("spelling", ("HONOR",)),
        "HONOUR'S": Source("spelling", ("HONOR",)),
        "HUMMED": Source("derivation", ("HUM", "ED")),
        "HUM'S": Source("derivation", ("HUM", "'S")),
        "BORD": Source("letters"),
        "BORD'S": Source("letters"),
    }
    assert report.failures == {}
    assert lexicon.words == set(words)
    assert lexicon.of("READ") == dictionary.of("READ")
    said = {word: " ".join(lexicon.of(word)[0].sounds) for word in ("HONOUR", "HUMMED", "HUM'S")}
    assert said == {"HONOUR": "AA N ER", "HUMMED": "HH AH M D", "HUM'S": "HH AH M Z"}
    assert lexicon.of("HONOUR'S")[0].sounds == ("AA", "N", "ER", "Z")


def test_words_that_cannot_be_said_are_reported_and_harm_no_other(
    dictionary: Lexicon, model: GraphemeToPhoneme
) -> None:
    lexicon, report = pronounce(["HUM", "C3PO", "<s>"], dictionary, model)
    assert lexicon.words == {"HUM"}
    assert set(report.failures) == {"C3PO", "<s>"}
    assert "'C3PO' has 3 C P, not a letter" in report.failures["C3PO"]
    assert "none for 'C3PO'" in str(report)


def test_further_guesses_are_as_many_and_as_likely_as_asked_for(
    dictionary: Lexicon, model: GraphemeToPhoneme
) -> None:
    for most in (1, 2, 4):
        lexicon, _ = pronounce(
            ["BOREAD"], dictionary, model, most_variants=most, least_probability=1e-9
        )
        probabilities = sorted((way.probability for way in lexicon.of("BOREAD")), reverse=True)
        assert len(probabilities) == most
        assert probabilities[0] == 1.0
    one, _ = pronounce(["BOREAD"], dictionary, model, most_variants=4, least_probability=1.0)
    assert len(one) == 1


def test_an_unlikely_compound_is_not_believed(dictionary: Lexicon) -> None:
    known = [*dictionary.pronunciations, Pronunciation("NEAD", ("ZH", "OY"))]
    model = train_g2p(dictionary)
    lexicon = Lexicon([*known, Pronunciation("X", ("ZH",)), Pronunciation("Y", ("OY",))])
    _, report = pronounce(["NEADROAD"], lexicon, model)
    assert report.sources["NEADROAD"] == Source("letters")


def test_silence_and_the_unknown_word_are_those_of_the_dictionary(
    dictionary: Lexicon, model: GraphemeToPhoneme
) -> None:
    whole = dictionary.with_unknown_word("<UNK>", "SPN")
    lexicon, report = pronounce(["HUM"], whole, model)
    assert lexicon.unknown_word == "<UNK>"
    assert lexicon.words == {"HUM", "<UNK>"}
    assert "<UNK>" not in report.sources


def test_a_model_of_other_sounds_is_refused(dictionary: Lexicon) -> None:
    strange = train_g2p(Lexicon([Pronunciation("HUM", ("h", "u", "m"))]))
    with pytest.raises(LexiconError, match="sounds that the dictionary lacks: h m u"):
        pronounce(["HUM"], dictionary, strange)


def test_a_report_counts_its_sources(dictionary: Lexicon, model: GraphemeToPhoneme) -> None:
    _, report = pronounce(["HUM", "RUN", "HONOUR"], dictionary, model)
    assert "2 as in the dictionary" in str(report)
    assert "1 as another spelling" in str(report)
