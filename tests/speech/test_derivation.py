import pytest

from natgrad.speech.lexicon.derivation import Derivation, Sounds, derive, split_clitic

KNOWN = {
    "HUM": "HH AH M",
    "CHARGE": "CH AA R JH",
    "FANCY": "F AE N S IY",
    "HAPPY": "HH AE P IY",
    "WALK": "W AO K",
    "WAIT": "W EY T",
    "DOUBTFUL": "D AW T F AH L",
    "NOBLE": "N OW B AH L",
    "FISHING": "F IH SH IH NG",
    "DARK": "D AA R K",
    "KNOW": "N OW",
    "FIRE": "F AY ER",
    "LIGHT": "L AY T",
}


def known(word: str) -> list[Sounds]:
    return [tuple(KNOWN[word].split())] if word in KNOWN else []


@pytest.mark.parametrize(
    ("word", "sounds", "parts"),
    [
        ("HUMS", "HH AH M Z", ("HUM", "S")),
        ("HUMMED", "HH AH M D", ("HUM", "ED")),
        ("HUMMING", "HH AH M IH NG", ("HUM", "ING")),
        ("CHARGES", "CH AA R JH IH Z", ("CHARGE", "S")),
        ("CHARGED", "CH AA R JH D", ("CHARGE", "ED")),
        ("CHARGING", "CH AA R JH IH NG", ("CHARGE", "ING")),
        ("FANCIES", "F AE N S IY Z", ("FANCY", "ES")),
        ("FANCIED", "F AE N S IY D", ("FANCY", "ED")),
        ("FANCYING", "F AE N S IY IH NG", ("FANCY", "ING")),
        ("HAPPILY", "HH AE P AH L IY", ("HAPPY", "LY")),
        ("HAPPINESS", "HH AE P IY N AH S", ("HAPPY", "NESS")),
        ("WALKS", "W AO K S", ("WALK", "S")),
        ("WALKED", "W AO K T", ("WALK", "ED")),
        ("WAITED", "W EY T IH D", ("WAIT", "ED")),
        ("DOUBTFULLY", "D AW T F AH L IY", ("DOUBTFUL", "LY")),
        ("NOBLY", "N OW B L IY", ("NOBLE", "BLY")),
        ("FISHIN", "F IH SH IH N", ("FISHING", "IN")),
        ("DARKNESS", "D AA R K N AH S", ("DARK", "NESS")),
        ("LIGHTLESS", "L AY T L AH S", ("LIGHT", "LESS")),
        ("KNOWETH", "N OW IH TH", ("KNOW", "ETH")),
        ("FIRELIGHT", "F AY ER L AY T", ("FIRE", "LIGHT")),
    ],
)
def test_endings_and_compounds_are_said_as_their_parts(
    word: str, sounds: str, parts: tuple[str, ...]
) -> None:
    assert Derivation(tuple(sounds.split()), parts) in derive(word, known)


@pytest.mark.parametrize(
    "word", ["", "S", "ING", "XS", "HUM", "THITHER", "FIRE'S", "BLY", "LIGHTX"]
)
def test_words_without_known_parts_are_not_derived(word: str) -> None:
    assert list(derive(word, known)) == []


def test_all_pronunciations_of_the_parts_are_proposed() -> None:
    ways: dict[str, list[Sounds]] = {"READ": [("R", "EH", "D"), ("R", "IY", "D")]}
    assert [way.sounds[1] for way in derive("READS", lambda word: ways.get(word, []))] == [
        "EH",
        "IY",
    ]


@pytest.mark.parametrize(
    ("word", "stem", "said"),
    [
        ("CLERK'S", "K", "K S"),
        ("MARCH'S", "CH", "CH IH Z"),
        ("DOG'S", "G", "G Z"),
        ("BILL'LL", "L", "L AH L"),
        ("BILL'D", "L", "L D"),
        ("KATE'D", "T", "T IH D"),
    ],
)
def test_clitics_are_said_by_the_sound_before_them(word: str, stem: str, said: str) -> None:
    split = split_clitic(word)
    assert split is not None
    assert split[0] + split[1] == word
    assert split[2]((stem,)) == tuple(said.split())


@pytest.mark.parametrize("word", ["", "'S", "DOGS", "DOGS'", "DON'T"])
def test_other_words_have_no_clitic(word: str) -> None:
    assert split_clitic(word) is None
