"""Input data normalization (appendix C.6): class statistics, and the transform they give.

Legend: W is the within-class covariance, B the between-class covariance (W + B is the total), and
b_i are the diagonal elements of B after the transform that makes W unit and B diagonal.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["ClassStatistics", "input_transform"]

# Eigenvalues of W (of features scaled to unit variance) are not taken to be smaller than this times
# the largest. In float64 they carry an error of about 1e-15, so below it there is mostly roundoff.
RELATIVE_EIGENVALUE_FLOOR = 1e-10

# A feature that varies by less than this times its mean is a constant that was rounded.
RELATIVE_STDDEV_FLOOR = 1e-12


def input_transform(
    mean: Tensor,
    within: Tensor,
    between: Tensor,
    *,
    within_class_factor: float = 0.001,
    max_singular_value: float = 5.0,
) -> tuple[Tensor, Tensor]:
    """The (matrix, offset) that give zero-mean data with more variance where classes differ more.

    1. An LDA transform without loss of dimensions makes W unit and B diagonal with elements b_i.
    2. Row i is scaled by sqrt((b_i + within_class_factor) / (b_i + 1)), so that dimension i gets a
       total variance of b_i + within_class_factor. Rows are in the order of falling b_i.
    3. Singular values of the matrix above ``max_singular_value`` are brought down to it, so that
       near-singular statistics do not make large elements. ``math.inf`` leaves this out.

    Erratum of the paper: it says that the singular values are *floored* (to 5). A floor would make
    large elements, not avoid them; a ceiling is meant, and nnet2 applies a ceiling.

    Steps 1 and 2 are invariant to affine transforms of the input; step 3 is not, not even to the
    units of the features: 5 is a sensible limit when features have standard deviations around one.

    A singular W (constant or dependent features, too little data) is not an error: its eigenvalues,
    after scaling features to unit variance, are floored at 1e-10 of the largest. (nnet2 adds 1e-3
    of the mean variance to the diagonal instead.) Computed and returned in float64.

    >>> mean, between = torch.tensor([1.0, 2.0]), torch.diag(torch.tensor([0.0, 8.0]))
    >>> matrix, offset = input_transform(mean, torch.eye(2), between)
    >>> total = (torch.eye(2) + between).double()
    >>> [round(v, 6) for v in (matrix @ total @ matrix.T).diagonal().tolist()]  # b_i + 0.001
    [8.001, 0.001]
    """
    if not within_class_factor >= 0 or not max_singular_value > 0:
        raise ValueError(
            f"input_transform got within_class_factor={within_class_factor} and "
            f"max_singular_value={max_singular_value}; the first must not be negative, and the "
            "second must be positive (the paper's are 0.001 and 5; math.inf is no limit)."
        )
    mean, within, between = mean.double(), within.double(), between.double()
    _check_statistics(mean, within, between)
    whiten = _whitening(within, _feature_scales(mean, within + between))
    # eigh reads one triangle only, so the product's roundoff asymmetry does not matter.
    b, directions = torch.linalg.eigh(whiten @ between @ whiten.T)
    b, directions = b.flip(0).clamp_min(0), directions.flip(1)
    row_scales = ((b + within_class_factor) / (b + 1)).sqrt()
    matrix = row_scales.unsqueeze(1) * (directions.T @ whiten)
    matrix = _limit_singular_values(matrix, max_singular_value)
    return matrix, -(matrix @ mean)


def _feature_scales(mean: Tensor, total: Tensor) -> Tensor:
    """The standard deviation of each feature, or 1 where it is constant."""
    stddev = total.diagonal().clamp_min(0).sqrt()
    return torch.where(stddev > RELATIVE_STDDEV_FLOOR * mean.abs(), stddev, 1.0)


def _whitening(within: Tensor, scales: Tensor) -> Tensor:
    """A matrix P such that P W P^T = I, up to the floor on W's eigenvalues.

    The features are scaled first, so that the floor does not depend on their units.
    """
    eigenvalues, eigenvectors = torch.linalg.eigh(within / scales.outer(scales))
    floored = eigenvalues.clamp_min(RELATIVE_EIGENVALUE_FLOOR * eigenvalues[-1].item())
    whitening: Tensor = (eigenvectors / floored.sqrt()).T / scales
    return whitening


def _limit_singular_values(matrix: Tensor, limit: float) -> Tensor:
    if limit == math.inf:
        return matrix
    left, singular_values, right = torch.linalg.svd(matrix)
    limited: Tensor = (left * singular_values.clamp_max(limit)) @ right
    return limited


def _check_statistics(mean: Tensor, within: Tensor, between: Tensor) -> None:
    square = (len(mean), len(mean))
    if mean.ndim != 1 or within.shape != square or between.shape != square:
        raise ValueError(
            f"input_transform got a mean of shape {tuple(mean.shape)}, within of "
            f"{tuple(within.shape)} and between of {tuple(between.shape)}; expected (features,), "
            "(features, features) and (features, features)."
        )
    if not all(bool(t.isfinite().all()) for t in (mean, within, between)):
        raise ValueError(
            "input_transform got statistics that are not finite; look for NaN or infinity in the "
            "features they were accumulated from."
        )
    mean_squares = mean.square() + (within + between).diagonal()
    if not bool((within.diagonal() > RELATIVE_STDDEV_FLOOR**2 * mean_squares).any()):
        raise ValueError(
            "input_transform got a within-class covariance of zero, or of roundoff: no class "
            "varies at all. Accumulate statistics from data with several different examples per "
            "class."
        )


class ClassStatistics:
    """Count and mean of each class, and the scatter within classes, accumulated in float64.

    Kept centred (Chan's pairwise update) rather than as raw moments, so that a large mean does not
    drown the variance. Statistics of parts of the data, from parallel jobs, are added with ``+``.

    Cost of a minibatch of N: 4 N features^2, whatever the number of classes.

    >>> statistics = ClassStatistics(num_features=1, num_classes=2)
    >>> features, labels = torch.tensor([[0.0], [2.0], [9.0], [11.0]]), torch.tensor([0, 0, 1, 1])
    >>> statistics.accumulate(features, labels)
    >>> statistics.mean.item(), statistics.within.item(), statistics.between.item()
    (5.5, 1.0, 20.25)
    >>> matrix, offset = input_transform(statistics.mean, statistics.within, statistics.between)
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        if num_features < 1 or num_classes < 1:
            raise ValueError(
                f"ClassStatistics got num_features={num_features} and num_classes={num_classes}; "
                "both must be at least 1."
            )
        self.counts = torch.zeros(num_classes, dtype=torch.float64)
        self.class_means = torch.zeros(num_classes, num_features, dtype=torch.float64)
        self.within_scatter = torch.zeros(num_features, num_features, dtype=torch.float64)

    def accumulate(self, features: Tensor, labels: Tensor) -> None:
        """Add a minibatch: features (examples, num_features) and labels (examples,)."""
        features, labels = features.detach().to("cpu", torch.float64), _as_indices(labels)
        self._check_minibatch(features, labels)
        classes, row_of, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        means, centred = torch.zeros(len(classes), features.shape[1]).double(), features
        for _ in range(2):  # the second time, it is the roundoff of a long sum that is taken out
            shift = torch.zeros_like(means).index_add_(0, row_of, centred) / counts.unsqueeze(1)
            means, centred = means + shift, centred - shift[row_of]
        self._add(classes, counts.double(), means, centred.T @ centred)

    def __add__(self, other: "ClassStatistics") -> "ClassStatistics":
        if self.class_means.shape != other.class_means.shape:
            raise ValueError(
                "Cannot add ClassStatistics whose (classes, features) are "
                f"{tuple(self.class_means.shape)} and {tuple(other.class_means.shape)}; "
                "they must be the same."
            )
        total = ClassStatistics(self.class_means.shape[1], len(self.counts))
        total.load_state_dict(self.state_dict())
        seen = other.counts.nonzero().flatten()
        total._add(seen, other.counts[seen], other.class_means[seen], other.within_scatter)
        return total

    def _add(self, classes: Tensor, counts: Tensor, means: Tensor, scatter: Tensor) -> None:
        """Two sets of n and m examples whose means differ by d scatter n m / (n + m) d d^T more."""
        before = self.counts[classes]
        share = counts / (before + counts)
        difference = means - self.class_means[classes]
        self.within_scatter += scatter + difference.T @ ((before * share).unsqueeze(1) * difference)
        self.class_means[classes] += share.unsqueeze(1) * difference
        self.counts[classes] += counts

    @property
    def num_examples(self) -> int:
        """Examples accumulated so far."""
        return int(self.counts.sum())

    @property
    def mean(self) -> Tensor:
        """The mean of all data, (features,)."""
        return self.counts @ self.class_means / self._total()

    @property
    def within(self) -> Tensor:
        """The within-class covariance W, (features, features)."""
        return self.within_scatter / self._total()

    @property
    def between(self) -> Tensor:
        """The between-class covariance B, (features, features)."""
        centred = self.class_means - self.mean
        return centred.T @ (self.counts.unsqueeze(1) * centred) / self._total()

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all that was accumulated."""
        return {
            "counts": self.counts.clone(),
            "class_means": self.class_means.clone(),
            "within_scatter": self.within_scatter.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace what was accumulated by a `state_dict` of statistics of the same size."""
        for name, ours in self.state_dict().items():
            found = tuple(state[name].shape) if name in state else "nothing"
            if found != tuple(ours.shape):
                raise ValueError(
                    f"The saved statistics have {found} for {name!r}; expected shape "
                    f"{tuple(ours.shape)}. Make ClassStatistics of the size that was saved."
                )
            setattr(self, name, state[name].double().clone())

    def _total(self) -> float:
        total = float(self.counts.sum())
        if total == 0:
            raise ValueError("ClassStatistics has no data yet; call accumulate(features, labels).")
        return total

    def _check_minibatch(self, features: Tensor, labels: Tensor) -> None:
        num_classes, num_features = self.class_means.shape
        if features.shape != (*labels.shape, num_features) or labels.ndim != 1:
            raise ValueError(
                f"accumulate got features of shape {tuple(features.shape)} and labels of shape "
                f"{tuple(labels.shape)}; expected (examples, {num_features}) and (examples,)."
            )
        if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
            raise ValueError(
                f"accumulate got labels from {int(labels.min())} to {int(labels.max())}; "
                f"expected 0 to {num_classes - 1}."
            )
        if not bool(features.isfinite().all()):
            bad = int((~features.isfinite()).any(1).sum())
            raise ValueError(
                f"accumulate got NaN or infinity in {bad} of {len(labels)} examples; "
                "find them before they are trained on."
            )


def _as_indices(labels: Tensor) -> Tensor:
    """The labels as torch wants its indices: some of its integer types are none."""
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise ValueError(f"accumulate got labels of type {labels.dtype}; expected integers.")
    return labels.detach().to("cpu", torch.int64)
