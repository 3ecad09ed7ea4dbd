import numpy as np

from natgrad.speech.gmm.questions import Questions, cluster_bottom_up, derive_questions
from natgrad.speech.gmm.tree_statistics import LEFT, PHONE, RIGHT, TreeStatistics
from natgrad.speech.phones import PhoneSet
from tests.speech.contexts import PHONES, draw_frames

FOUR = PhoneSet(silences=("SIL",), speech=("A", "E", "S", "Z"))


def statistics_of(means: dict[str, list[float]], phones: PhoneSet = FOUR) -> TreeStatistics:
    """Of one state for each sound, by name, and each of the means of its states."""
    contexts, moments = [], []
    for name, of_states in means.items():
        phone = int(np.argmax(phones.sound_of == phones.sounds.index(name)))
        for position, mean in enumerate(of_states):
            contexts.append((0, phone, 0, position))
            moments.append([100.0, 100 * mean, 100 * (mean**2 + 1)])
    return TreeStatistics(np.array(contexts, dtype=np.int32), np.array(moments))


def named(questions: Questions, column: int, phones: PhoneSet = FOUR) -> set[frozenset[str]]:
    """The sets of phones, by name, that a column is asked about."""
    return {
        frozenset(
            phones.symbols.name(number) for number in (np.flatnonzero(members[1:]) + 1).tolist()
        )
        for members in questions.members[questions.column == column]
    }


def phones_of(*sounds: str) -> frozenset[str]:
    return frozenset(name for name in FOUR.symbols if name.split("_")[0] in sounds)


def test_sounds_that_are_alike_make_a_question() -> None:
    questions = derive_questions(
        statistics_of({"SIL": [-50, -50], "A": [0, 0], "E": [1, 1], "S": [20, 20], "Z": [21, 21]}),
        FOUR,
    )
    for column in (LEFT, RIGHT):
        sets = named(questions, column)
        for sounds in (["A"], ["E"], ["S"], ["Z"], ["SIL"], ["A", "E"], ["S", "Z"]):
            assert phones_of(*sounds) in sets
        assert phones_of("A", "S") not in sets
        assert frozenset(FOUR.symbols) not in sets


def test_beginnings_and_ends_of_sounds_are_clustered_apart() -> None:
    questions = derive_questions(
        statistics_of({"A": [0, 0], "E": [1, 21], "S": [20, 1], "Z": [21, 20]}), FOUR
    )
    assert phones_of("A", "E") in named(questions, LEFT)
    assert phones_of("A", "S") in named(questions, LEFT)


def test_phone_itself_is_asked_only_for_its_place_in_the_word() -> None:
    questions = derive_questions(draw_frames(seed=1).statistics(), PHONES)
    sets = named(questions, PHONE, PHONES)
    assert {frozenset({"AH_B", "B_B", "K_B"}), frozenset({"AH_E", "B_E", "K_E"})} <= sets
    assert all(len(members) in (3, 6) for members in sets)


def test_phones_without_marks_are_not_asked_for_any() -> None:
    phones = PhoneSet(("SIL",), ("A", "E", "S", "Z"), marks_position=False)
    statistics = statistics_of({"A": [0], "E": [1], "S": [20], "Z": [21]}, phones)
    questions = derive_questions(statistics, phones)
    assert set(questions.column.tolist()) == {LEFT, RIGHT}
    assert frozenset({"A", "E"}) in named(questions, LEFT, phones)


def test_edge_of_the_utterance_answers_as_silence() -> None:
    questions = derive_questions(draw_frames(seed=1).statistics(), PHONES)
    np.testing.assert_array_equal(questions.members[:, 0], questions.members[:, 1])
    assert questions.members[:, 0].any()


def test_sounds_that_were_never_said_are_in_no_cluster() -> None:
    moments = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 18.0], [9.0, 90.0, 909.0]])
    assert [sorted(cluster) for cluster in cluster_bottom_up(moments)] == [[1], [2], [1, 2]]


def test_no_question_is_asked_twice() -> None:
    questions = derive_questions(draw_frames(seed=2).statistics(), PHONES)
    rows = [(c, m.tobytes()) for c, m in zip(questions.column, questions.members, strict=True)]
    assert len(rows) == len(set(rows))
    assert questions.members.any(axis=1).all()
    assert not questions.members.all(axis=1).any()
