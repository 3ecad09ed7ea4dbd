"""Commands that train networks, look at runs, and work on model files."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from natgrad.cli.exits import RunFailedError

__all__ = ["add_training"]

_Command = Callable[[str, str], argparse.ArgumentParser]


# -- commands ------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> None:
    from natgrad.recipes.train import train_from_toml
    from natgrad.report.progress import Progress

    progress = Progress()
    try:
        final = train_from_toml(options.config, options.set, on_event=progress.handle)
    except (OSError, ValueError) as error:
        if progress.started:
            raise RunFailedError from error
        raise
    finally:
        progress.close()
    print(final)


def _demo(options: argparse.Namespace) -> None:
    from natgrad.recipes import demo
    from natgrad.report import write_report
    from natgrad.report.progress import Progress
    from natgrad.report.stage_progress import StageProgress

    stages = StageProgress()
    runs = demo.main(
        options.out,
        progress=stages.bar,
        on_stage=stages.handle,
        follow=lambda name: Progress().handle,
    )
    page = write_report(runs, f"{options.out}/compared/report.html")
    print(f"\nThe four runs in pictures: {page}")


def _prepare(options: argparse.Namespace) -> None:
    from natgrad.recipes.describe import format_bytes
    from natgrad.recipes.prepare import prepare

    names = (
        "num_classes left_context right_context num_jobs samples_per_job validation_samples "
        "train_subset_samples seed num_workers"
    )
    examples = prepare(
        options.files, options.out, **{name: getattr(options, name) for name in names.split()}
    )
    print(
        f"{examples.directory}: {examples.num_samples} samples of {examples.num_classes} classes "
        f"in {examples.num_blocks} block{'s' * (examples.num_blocks != 1)}, "
        f"{format_bytes(examples.num_bytes)}"
    )


def _report(options: argparse.Namespace) -> None:
    from natgrad.report import write_report
    from natgrad.report.tensorboard import write_tensorboard

    if options.tensorboard is not None:
        for directory in write_tensorboard(options.runs, options.tensorboard):
            print(directory)
    if options.tensorboard is None or options.out is not None:
        print(write_report(options.runs, options.out or "report.html"))


def _average(options: argparse.Namespace) -> None:
    from natgrad.recipes.models import average_models

    average_models(options.models, options.out, options.weights)


def _combine(options: argparse.Namespace) -> None:
    from natgrad.recipes.combination import combine_models

    facts = combine_models(
        options.models, options.out, options.examples, options.method, options.data
    )
    inputs = ", ".join(f"{objective:.5f}" for objective in facts["objectives"])
    print(f"{options.out}: objective {facts['objective']:.5f}; of the models: {inputs}")


def _info(options: argparse.Namespace) -> None:
    from natgrad.recipes.models import describe

    print("\n\n".join(describe(path) for path in options.paths))


def _export(options: argparse.Namespace) -> None:
    from natgrad.recipes.models import export_onnx

    export_onnx(options.model, options.onnx)


# -- what they take ------------------------------------------------------------------------------


def add_training(command: _Command) -> None:
    """Declare the commands, with a function that declares one by its name and help."""
    demo = command("demo", "train on synthesised speech by SGD and NG-SGD, with 1 and 4 jobs")
    demo.add_argument("-o", "--out", default="demo", metavar="DIR", help="where to (demo)")
    demo.set_defaults(run=_demo)
    _add_train(command)
    _add_report(command("report", "make one HTML page about one or several runs"))
    _add_models(command)


def _add_train(command: _Command) -> None:
    train = command("train", "train as a configuration says, or go on with it")
    train.add_argument("config", metavar="CONFIG.toml")
    train.add_argument(
        "--resume", action="store_true", help="go on with a run: this is always so, and may be said"
    )
    _add_set(train)
    train.set_defaults(run=_train)
    _add_prepare(command("prepare", "write examples to train on, from arrays in files"))


def _add_prepare(prepare: argparse.ArgumentParser) -> None:
    prepare.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=".npz or .safetensors with features (rows, D) and labels (rows,), perhaps weights "
        "(rows,), and for utterances, which have context, their lengths",
    )
    prepare.add_argument("-o", "--out", required=True, metavar="DIR", help="a new directory")
    for name, default, help_ in (
        ("num-classes", None, "labels are below it (default: 1 + the largest label)"),
        ("left-context", 0, "frames that an example has before its own"),
        ("right-context", 0, "and after it"),
        ("num-jobs", 1, "N, the jobs that will train at the same time"),
        ("samples-per-job", 400_000, "K, the samples of a job in an outer iteration"),
        ("validation-samples", 0, "about as many are held out, as whole utterances"),
        ("train-subset-samples", 0, "about as many are copied, for diagnostics and combination"),
        ("seed", 0, "of all random choices"),
        ("num-workers", 1, "processes"),
    ):
        text = help_ if default is None else f"{help_} ({default})"
        prepare.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    prepare.set_defaults(run=_prepare)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the configuration, as in training.num_jobs=4; may be repeated",
    )


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("runs", nargs="+", metavar="RUN", help="a run's directory")
    report.add_argument("-o", "--out", metavar="FILE.html", help="the page (report.html)")
    report.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write TensorBoard's scalars there; a page only if -o is given too",
    )
    report.set_defaults(run=_report)


def _add_models(command: _Command) -> None:
    average = command("average", "average models of one network")
    average.add_argument("models", nargs="+", metavar="MODEL")
    average.add_argument("-o", "--out", required=True, metavar="FILE", help="the mean")
    average.add_argument(
        "--weights",
        type=_numbers,
        metavar="W,W,...",
        help="a weight per model; they need not sum to one (default: all the same)",
    )
    average.set_defaults(run=_average)
    combine = command("combine", "combine models with the best weights per layer")
    combine.add_argument(
        "--examples", required=True, metavar="DIR", help="whose samples it is judged by"
    )
    combine.add_argument("--method", choices=("generalised", "mean"), default="generalised")
    combine.add_argument(
        "--data",
        choices=("train", "validation", "both"),
        default="both",
        help="judge by the training subset, the validation data, or both (the default)",
    )
    combine.add_argument("models", nargs="+", metavar="MODEL")
    combine.add_argument("-o", "--out", required=True, metavar="FILE", help="the combined model")
    combine.set_defaults(run=_combine)
    info = command("info", "tell what is in model files, or how far runs are")
    info.add_argument("paths", nargs="+", metavar="MODEL|RUN")
    info.set_defaults(run=_info)
    export = command("export", "write a model in another format")
    export.add_argument("model", metavar="MODEL")
    export.add_argument("--onnx", required=True, metavar="FILE", help="as ONNX")
    export.set_defaults(run=_export)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected numbers with commas between them, as in 1,2.5,1, but got {text!r}"
        ) from None
