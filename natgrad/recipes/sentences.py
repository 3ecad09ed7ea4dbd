"""Sentences for the demo to speak: a small grammar, expanded at random."""

from __future__ import annotations

import re
from collections.abc import Collection
from random import Random

__all__ = ["draw_sentences", "sentence", "vocabulary", "words_of"]

# Each name stands for one of its alternatives; a name in braces inside one is expanded in turn.
GRAMMAR: dict[str, tuple[str, ...]] = {
    "sentence": (
        "{call}", "{call}", "{weather}", "{weather}", "{command}", "{command}", "{meeting}",
        "{meeting}", "{journey}", "{shopping}", "{cooking}", "{remark}", "{question}",
    ),
    "call": (
        "Call {digits}.",
        "{name}'s number is {digits}, I think.",
        "The code is {digits}, not {digits}.",
        "Please dial {digits} and ask for {name}.",
    ),
    "digits": (
        "{digit} {digit} {digit}",
        "{digit} {digit} {digit} {digit}",
        "{digit} {digit} {digit}, {digit} {digit}",
        "{digit} {digit} double {digit} {digit}",
    ),
    "digit": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "weather": (
        "It will be {sky} in {place} on {day}.",
        "On {day} expect {nuisance} and {number} degrees near {place}.",
        "{nuisance} from the {direction}, clearing up by {hour}.",
        "The {direction} stays {sky}, but {place} may see {nuisance}.",
    ),
    "sky": ("bright", "cloudy", "dry", "foggy", "dull and damp", "clear", "warm", "rather cool"),
    "nuisance": ("thunder", "heavy showers", "light snow", "strong wind", "hail", "a little rain",
                 "thick fog", "sleet"),
    "direction": ("north", "south", "east", "west", "northern hills", "southern shore"),
    "command": (
        "{switch} the {device} in the {room}.",
        "{name}, {switch} the {colour} {device}, please.",
        "Set the {device} to {number} at {hour}.",
        "Go {way}, then {way}, and stop at the {colour} sign.",
    ),
    "switch": ("switch on", "turn off", "check", "repair", "move", "cover", "unplug", "measure"),
    "device": ("heater", "television", "lamp", "radio", "fan", "oven", "alarm", "washing machine",
               "garage door", "cooker"),
    "room": ("kitchen", "hall", "bathroom", "cellar", "office", "garden house", "upstairs room"),
    "colour": ("red", "green", "blue", "yellow", "orange", "purple", "beige", "grey", "black"),
    "way": ("left", "right", "straight on", "down the road", "up the stairs", "round the corner"),
    "meeting": (
        "{name} and {name} will meet at {hour} on {day}.",
        "Can {name} join us in {place} at {hour}?",
        "{name} has moved the {event} from {day} to {day}.",
        "There are {number} people at the {event} in {place}.",
    ),
    "event": ("concert", "lecture", "wedding", "picnic", "job interview", "football match",
              "birthday party", "annual review", "casual chat"),
    "name": ("Anna", "George", "Fiona", "Thomas", "Joyce", "Victor", "Sheila", "Hugh", "Judith",
             "Oscar", "Yvonne", "Matthew", "Ruth", "Keith", "Zoe", "Charles", "Naomi", "Paul"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": ("noon", "half past {small}", "a quarter to {small}", "{small} o'clock", "midnight"),
    "small": ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    "number": ("{tens}", "{tens} {small}", "{small}", "a hundred and {small}", "a thousand"),
    "tens": ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
    "place": ("Oxford", "the harbour", "Chicago", "the valley", "Vienna", "the old town", "Leith",
              "the village", "Boston", "the airport", "Jura", "the mountains", "Cuba"),
    "journey": (
        "The {vehicle} to {place} leaves at {hour}.",
        "We took the {vehicle} through {place} for {number} miles.",
        "The {colour} {vehicle} is {number} minutes late.",
    ),
    "vehicle": ("train", "bus", "ferry", "tram", "coach", "night train", "cable car", "taxi"),
    "shopping": (
        "I bought {number} {goods} and some {food}.",
        "How much are the {colour} {goods}?",
        "{name} sold {goods} worth {number} pounds.",
    ),
    "goods": ("shoes", "chairs", "pencils", "oranges", "books", "cups", "watches", "gloves",
              "bottles", "boxes", "toys"),
    "cooking": (
        "Add {food}, then stir in the {food} for {small} minutes.",
        "Boil the {food} with {food} and a pinch of {food}.",
        "{name} likes {food} with {food}.",
    ),
    "food": ("butter", "cheese", "fish", "thyme", "sugar", "rice", "beef", "soup", "ginger",
             "olive oil", "mushrooms", "yoghurt", "white bread", "chocolate", "pure honey"),
    "remark": (
        "{name} is {mood} about the {event}.",
        "My {relative} found it {mood}, as usual.",
        "Nobody here was {mood}, although the {vehicle} was late.",
        "Their {relative} enjoys a {mood} voice and a good {event}.",
    ),
    "mood": ("happy", "anxious", "cheerful", "curious", "calm", "thoughtful", "annoyed", "weird",
             "very sure", "poor and tired"),
    "relative": ("mother", "father", "brother", "younger cousin", "uncle", "aunt", "daughter"),
    "question": (
        "Where is the {colour} {device}?",
        "Why does {name} choose {food}?",
        "Which {vehicle} goes to {place}?",
        "Who put {number} {goods} into the {room}?",
    ),
}  # fmt: skip


def sentence(random: Random) -> str:
    """Return a sentence, drawn from some millions.

    >>> sentence(Random(3)) == sentence(Random(3))
    True
    """
    text = _expand("{sentence}", random)
    return text[0].upper() + text[1:]


def draw_sentences(num: int, seed: str, apart_from: Collection[str] = ()) -> list[str]:
    """Return so many different sentences, none of which is among those to stay apart from.

    >>> drawn = draw_sentences(3, "a")
    >>> len(set(drawn) | set(draw_sentences(3, "a", apart_from=drawn)))
    6
    """
    random = Random(seed)
    avoided = set(apart_from)
    drawn: dict[str, None] = {}
    while len(drawn) < num:
        text = sentence(random)
        if text not in avoided:
            drawn[text] = None
    return list(drawn)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a sentence as a transcript has them.

    >>> words_of("Anna's number is two, I think.")
    ("ANNA'S", 'NUMBER', 'IS', 'TWO', 'I', 'THINK')
    """
    return tuple(re.findall(r"[A-Z']+", text.upper()))


def vocabulary() -> list[str]:
    """Return all words that sentences may have.

    >>> [word for word in vocabulary() if word.startswith("ZO")]
    ['ZOE', "ZOE'S"]
    """
    possessed = [word + "'s" for word in GRAMMAR["name"]]
    texts = [text for texts in GRAMMAR.values() for text in texts] + possessed
    return sorted({word for text in texts for word in words_of(re.sub(r"{\w+}('s)?", " ", text))})


def _expand(text: str, random: Random) -> str:
    return re.sub(r"{(\w+)}", lambda name: _expand(random.choice(GRAMMAR[name[1]]), random), text)
