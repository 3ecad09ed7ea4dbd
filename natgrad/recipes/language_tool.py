"""What `natgrad speech lm` does: a language model from a text, and how good it is."""

from __future__ import annotations

from pathlib import Path

from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.lm.arpa import write_arpa
from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import UNKNOWN, NgramModel
from natgrad.speech.lm.numbered_text import NumberedText, number_text
from natgrad.speech.lm.perplexity import perplexity
from natgrad.speech.lm.pruning import prune

__all__ = ["write_language_model"]


def write_language_model(
    text: str | Path,
    out: str | Path,
    order: int = 3,
    vocabulary: int | None = None,
    prune_to: float | None = None,
    words_in: str | Path | None = None,
    held_out: str | Path | None = None,
    small_text_discounts: bool = False,
) -> str:
    """Estimate a language model, write it in ARPA format, and return what it is like.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = (place / "text").write_text("YES NO\\nNO NO\\n")
    >>> told = write_language_model(
    ...     place / "text", place / "lm.arpa", order=2, held_out=place / "text",
    ...     small_text_discounts=True
    ... )
    >>> print(told.replace(str(place), "DIR"))
    DIR/lm.arpa: 2 words, 10 n-grams up to order 2
    DIR/text: perplexity 2.192, 0 of 4 words (0.00 %) unknown

    Args:
        text: a file of one sentence a line, perhaps .gz or .xz.
        out: the model, perhaps .gz or .xz.
        order: the number of words of the longest n-grams.
        vocabulary: how many of the text's most frequent words are in it; by default all.
        prune_to: keep at most so many n-grams; if it is below 1, drop those whose loss raises the
            perplexity by less than this share.
        words_in: a lexicon: words that it lacks are not in the model, and as they cannot be
            recognised, neither is the unknown word.
        held_out: a text to tell the perplexity of.
        small_text_discounts: use fixed discounts, as for a text too small to estimate them.
    """
    sentences = number_text(Path(text))
    # Read now, so that a mistyped name is not found out only after the estimation.
    judged = None if held_out is None else number_text(Path(held_out))
    among = None if words_in is None else read_lexicon(words_in).words
    words = sentences.most_frequent(vocabulary, among)
    if not words and among is not None:
        raise ValueError(f"no word of {text} is in the lexicon {words_in}: are both in one case?")
    model = estimate(
        sentences,
        words,
        order,
        unknown=UNKNOWN if among is None else None,
        discounts=SMALL_TEXT_DISCOUNTS if small_text_discounts else None,
    )
    if prune_to is not None and prune_to < 1:
        model = prune(model, threshold=prune_to, text=sentences)
    elif prune_to is not None:
        model = prune(model, num_ngrams=int(prune_to), text=sentences)
    write_arpa(model, out)
    told = f"{out}: {len(words)} words, {model.num_ngrams} n-grams up to order {order}"
    return told if judged is None else f"{told}\n{held_out}: {_judge(model, judged)}"


def _judge(model: NgramModel, text: NumberedText) -> str:
    found = perplexity(model, text)
    return (
        f"perplexity {found.value:.4g}, {found.num_unknown} of {found.num_words} words "
        f"({100 * found.unknown_rate:.2f} %) unknown"
    )
