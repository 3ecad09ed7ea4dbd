"""Speech recognition: from recordings to word error rates, on arrays and plain files."""

import importlib.util

_MODULES = (
    "kaldi_native_fbank",
    "kaldialign",
    "kaldifst",
    "kaldiio",
    "numba",
    "soundfile",
    "soxr",
)

_missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"natgrad.speech needs {', '.join(_missing)}, not installed here: "
        "run  pip install 'natgrad[speech]'",
        name=_missing[0],
    )
