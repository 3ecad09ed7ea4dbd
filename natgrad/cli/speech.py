"""Commands for speech: data, features, language models, scores, and whole recipes."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

from natgrad.cli.exits import FAILED, RunFailedError

__all__ = ["add_speech"]

_Command = Callable[[str, str], argparse.ArgumentParser]


# -- commands ------------------------------------------------------------------------------------


def _prepare(options: argparse.Namespace) -> None:
    from natgrad.recipes.speech_tools import prepare_corpus

    print(prepare_corpus(options.corpus, options.source, options.out))


def _check(options: argparse.Namespace) -> int:
    from natgrad.recipes.speech_tools import check_directory
    from natgrad.report.stage_progress import StageProgress

    told, is_good = check_directory(
        options.directory, options.lexicon, options.other, options.workers, StageProgress().bar
    )
    print(told)
    return 0 if is_good else FAILED


def _features(options: argparse.Namespace) -> int:
    from natgrad.recipes.speech_tools import extract_features
    from natgrad.report.stage_progress import StageProgress

    extracted = extract_features(
        options.directory,
        options.out,
        options.high_resolution,
        options.sample_rate,
        options.kaldi,
        options.workers,
        StageProgress().bar,
    )
    for key, reason in extracted.failures.items():
        print(f"failed: {key}: {reason}", file=sys.stderr)
    print(extracted.summary)
    return FAILED if extracted.failures else 0


def _language_model(options: argparse.Namespace) -> None:
    from natgrad.recipes.language_tool import write_language_model

    print(
        write_language_model(
            options.text,
            options.out,
            options.order,
            options.vocabulary,
            options.prune,
            options.words_in,
            options.held_out,
            options.small_text_discounts,
        )
    )


def _score(options: argparse.Namespace) -> None:
    from natgrad.recipes.speech_tools import score_files

    print(score_files(options.reference, options.hypothesis, options.speakers))


def _recipe(options: argparse.Namespace) -> None:
    from natgrad.recipes.speech_commands import list_stages, run_recipe
    from natgrad.report import write_report
    from natgrad.report.stage_progress import StageProgress

    if options.stages:
        for number, (name, purpose) in enumerate(list_stages(options.name), start=1):
            print(f"{number:2}  {name:13} {purpose}")
        return
    if options.out is None:
        raise ValueError("give --out DIR, where all that the recipe makes is to be")
    progress = StageProgress()
    try:
        end = run_recipe(
            options.name,
            options.data,
            options.out,
            progress.bar,
            progress.handle,
            progress.handle_training,
            options.first,
            options.last,
            options.engine,
            options.workers,
            options.engine_option,
        )
    except (OSError, ValueError, RuntimeError) as error:
        if progress.stage is not None:
            raise RunFailedError(f"stage {progress.stage}") from error
        raise
    finally:
        options.has_begun = progress.stage is not None
        progress.close()
    if end.table is not None:
        print(f"\n{end.table}\n")
    if end.network is not None:
        page = write_report([end.network], f"{options.out}/report.html")
        print(f"The network's training in pictures: {page}")


# -- what they take ------------------------------------------------------------------------------


def add_speech(command: _Command, shared: argparse.ArgumentParser) -> None:
    """Declare the commands; `shared` is the parent of each that a command of its own has."""
    speech = command("speech", "prepare and check recordings, make features and language models")
    tools = speech.add_subparsers(dest="tool", required=True, metavar="COMMAND")

    def tool(name: str, help_: str) -> argparse.ArgumentParser:
        return tools.add_parser(name, help=help_, description=help_, parents=[shared])

    _add_prepare(tool("prepare", "make data directories of a corpus in its own layout"))
    _add_check(tool("check", "find what is wrong with a data directory, and say what to do"))
    _add_features(tool("features", "compute the MFCC of a data directory"))
    _add_language_model(tool("lm", "estimate a language model from a text (Kneser-Ney)"))
    _add_score(tool("score", "count word errors"))
    _add_recipe(command("recipe", "from recordings to word error rates, or go on with it"))


def _add_prepare(prepare: argparse.ArgumentParser) -> None:
    prepare.add_argument("corpus", metavar="CORPUS", help="an4 or librispeech")
    prepare.add_argument("source", metavar="SOURCE", help="the corpus's directory")
    _add_out(prepare, "where the data directories are to be")
    prepare.set_defaults(run=_prepare)


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("directory", metavar="DIR", help="a data directory")
    check.add_argument("--lexicon", metavar="FILE", help="that must have all words that are said")
    check.add_argument(
        "--other", metavar="DIR", help="another set, which must have no speaker in common with it"
    )
    _add_workers(check)
    check.set_defaults(run=_check)


def _add_features(features: argparse.ArgumentParser) -> None:
    features.add_argument("directory", metavar="DATADIR", help="a data directory")
    _add_out(features, "of the features")
    features.add_argument(
        "--high-resolution",
        action="store_true",
        help="40 cepstra of 40 mel bins, instead of 13 of 23, with the energy",
    )
    features.add_argument(
        "--sample-rate",
        type=_positive,
        metavar="HZ",
        help="resample recordings to it (default: theirs)",
    )
    features.add_argument(
        "--kaldi", metavar="FILE.ark", help="write them for Kaldi, too, with FILE.scp beside it"
    )
    _add_workers(features)
    features.set_defaults(run=_features)


def _add_language_model(lm: argparse.ArgumentParser) -> None:
    lm.add_argument("text", metavar="TEXT", help="a sentence a line; perhaps .gz or .xz")
    lm.add_argument("-o", "--out", required=True, metavar="LM.arpa.gz", help="the model")
    lm.add_argument("--order", type=_positive, default=3, metavar="N", help="of n-grams (3)")
    lm.add_argument(
        "--vocabulary", type=_positive, metavar="N", help="take the N most frequent words"
    )
    lm.add_argument(
        "--words-in", metavar="LEXICON", help="take only words that have a pronunciation"
    )
    lm.add_argument(
        "--prune",
        type=_above_zero,
        metavar="N",
        help="keep at most N n-grams; below 1: drop those whose loss raises the perplexity by "
        "less than this share",
    )
    lm.add_argument("--held-out", metavar="TEXT", help="a text to tell the perplexity of")
    lm.add_argument(
        "--small-text-discounts",
        action="store_true",
        help="fixed ones, for a text that is too small to estimate them",
    )
    lm.set_defaults(run=_language_model)


def _add_score(score: argparse.ArgumentParser) -> None:
    score.add_argument("reference", metavar="REFERENCE", help="lines of a key and what was said")
    score.add_argument("hypothesis", metavar="HYPOTHESIS", help="and of what was recognised")
    score.add_argument(
        "--speakers", metavar="UTT2SPK", help="lines of a key and its speaker; tell them apart"
    )
    score.set_defaults(run=_score)


def _add_recipe(recipe: argparse.ArgumentParser) -> None:
    recipe.allow_abbrev = False  # --from is taken out of the command that goes on
    recipe.add_argument("name", metavar="NAME", help="an4, librispeech or demo")
    recipe.add_argument("--stages", action="store_true", help="only list the stages")
    recipe.add_argument("--data", metavar="DIR", help="the corpus (demo needs none)")
    recipe.add_argument("-o", "--out", metavar="DIR", help="of all that is made")
    recipe.add_argument(
        "--from",
        dest="first",
        metavar="STAGE",
        help="do this stage again, and those after it (default: the first that is not done)",
    )
    recipe.add_argument("--to", dest="last", metavar="STAGE", help="end with this stage")
    recipe.add_argument(
        "--engine",
        default="local",
        metavar="NAME",
        help="inline, local (the default), ray, slurm or gridengine",
    )
    recipe.add_argument(
        "--engine-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as in queue=long; may be repeated",
    )
    _add_workers(recipe)
    recipe.set_defaults(run=_recipe)


def _add_out(parser: argparse.ArgumentParser, help_: str) -> None:
    parser.add_argument("-o", "--out", required=True, metavar="DIR", help=help_)


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=_positive, metavar="N", help="at the same time (default: all cores)"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, but got {text!r}")
    return int(text)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, but got {text!r}")
    return number
