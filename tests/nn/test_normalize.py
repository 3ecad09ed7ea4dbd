import math
from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.nn import ClassStatistics, build, input_transform

seeds = st.integers(0, 2**30)


def example_data(
    seed: int, num_examples: int = 400, num_features: int = 5, num_classes: int = 12
) -> tuple[Tensor, Tensor]:
    """Correlated features around random class means, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.randint(num_classes, (num_examples,), generator=generator)
    # Triangular with a unit diagonal: never close to singular.
    spread = torch.eye(num_features) + 0.3 * normal(num_features, num_features).triu(1)
    means = normal(num_classes, num_features) * torch.linspace(0, 2, num_features)
    return means[labels] + normal(num_examples, num_features) @ spread + 3, labels


def statistics_of(features: Tensor, labels: Tensor, num_classes: int = 12) -> ClassStatistics:
    statistics = ClassStatistics(features.shape[1], num_classes)
    statistics.accumulate(features, labels)
    return statistics


def transform_of(
    features: Tensor, labels: Tensor, max_singular_value: float = math.inf
) -> tuple[Tensor, Tensor]:
    s = statistics_of(features, labels)
    return input_transform(s.mean, s.within, s.between, max_singular_value=max_singular_value)


def literal_covariances(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The definitions, class by class: mean, within-class and between-class covariance."""
    mean = features.mean(0)
    within = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    between = within.clone()
    for label in labels.unique().tolist():
        members = features[labels == label]
        centred = members - members.mean(0)
        within += centred.T @ centred / len(features)
        offset = members.mean(0) - mean
        between += len(members) / len(features) * offset.outer(offset)
    return mean, within, between


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 60), st.integers(1, 25))
def test_streamed_statistics_are_the_definitions(
    seed: int, num_examples: int, batch_size: int
) -> None:
    features, labels = example_data(seed, num_examples)
    statistics = ClassStatistics(5, 12)
    for batch in zip(
        torch.split(features, batch_size), torch.split(labels, batch_size), strict=True
    ):
        statistics.accumulate(*batch)
    mean, within, between = literal_covariances(features, labels)
    torch.testing.assert_close(statistics.mean, mean)
    torch.testing.assert_close(statistics.within, within, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(statistics.between, between, rtol=1e-9, atol=1e-12)
    assert statistics.num_examples == num_examples
    assert torch.equal(statistics.counts, labels.bincount(minlength=12).double())


def test_within_and_between_sum_to_the_total_covariance() -> None:
    features, labels = example_data(0)
    statistics = statistics_of(features, labels)
    total = torch.cov(features.T, correction=0)
    torch.testing.assert_close(statistics.within + statistics.between, total)


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(1, 5))
def test_statistics_of_parts_add_up_to_those_of_the_whole(seed: int, parts: int) -> None:
    features, labels = example_data(seed, 60)
    pieces = [
        statistics_of(*piece)
        for piece in zip(features.chunk(parts), labels.chunk(parts), strict=True)
    ]
    before = pieces[0].state_dict()
    total = reduce(lambda a, b: a + b, pieces, ClassStatistics(5, 12))
    whole = statistics_of(features, labels)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(total.state_dict()[name], value, rtol=1e-10, atol=1e-12)
        assert torch.equal(pieces[0].state_dict()[name], before[name])


def test_a_large_mean_does_not_drown_the_variance() -> None:
    features, labels = example_data(0)
    shifted = statistics_of(features + 1e8, labels)
    torch.testing.assert_close(
        shifted.within, statistics_of(features, labels).within, rtol=1e-5, atol=1e-5
    )


def test_float32_features_are_accumulated_in_float64() -> None:
    features, labels = example_data(0)
    narrow = features.float()
    exact = statistics_of(narrow.double(), labels)
    assert torch.equal(statistics_of(narrow, labels).within, exact.within)


def test_saved_statistics_go_on_as_if_never_interrupted() -> None:
    features, labels = example_data(0)
    straight = statistics_of(features[:200], labels[:200])
    resumed = ClassStatistics(5, 12)
    resumed.load_state_dict(straight.state_dict())
    for statistics in (straight, resumed):
        statistics.accumulate(features[200:], labels[200:])
    for name, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_transformed_data_has_zero_mean_and_total_variance_b_plus_a_thousandth(seed: int) -> None:
    features, labels = example_data(seed)
    matrix, offset = transform_of(features, labels)
    mean, within, between = literal_covariances(features @ matrix.T + offset, labels)
    # Judged without eigenvectors: b_i are the eigenvalues of W^-1 B, invariant to the transform.
    _, raw_within, raw_between = literal_covariances(features, labels)
    b = torch.linalg.eigvals(torch.linalg.solve(raw_within, raw_between)).real.sort()[0].flip(0)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-9)
    torch.testing.assert_close(within + between, torch.diag(b + 0.001), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(between.diag() / within.diag(), b, rtol=1e-7, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(2, 12))
def test_without_a_limit_the_result_is_invariant_to_affine_transforms_of_the_input(
    seed: int, num_classes: int
) -> None:
    # With few classes most b_i are zero and their directions arbitrary, but all inner products of
    # transformed examples are still determined.
    features, labels = example_data(seed, num_classes=num_classes)
    generator = torch.Generator().manual_seed(seed + 1)
    left, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))
    stretch = 10 ** torch.linspace(-1, 1, 5, dtype=torch.float64)
    shift = 100 * torch.randn(5, generator=generator, dtype=torch.float64)
    other = features @ (left * stretch) @ right + shift
    grams = []
    for data in (features, other):
        matrix, offset = transform_of(data, labels)
        transformed = data @ matrix.T + offset
        grams.append(transformed @ transformed.T)
    torch.testing.assert_close(grams[1], grams[0], rtol=1e-8, atol=1e-8)


def test_a_change_of_units_by_many_orders_of_magnitude_does_not_matter_without_a_limit() -> None:
    features, labels = example_data(0)
    units = torch.tensor([1e-9, 1e9, 1.0, 1e-4, 1e6], dtype=torch.float64)
    transformed = []
    for data in (features, features * units):
        matrix, offset = transform_of(data, labels)
        transformed.append(data @ matrix.T + offset)
    products = [t @ t.T for t in transformed]
    torch.testing.assert_close(products[1], products[0], rtol=1e-6, atol=1e-6)


def test_the_limit_caps_the_largest_singular_values_and_leaves_the_others() -> None:
    features, labels = example_data(0)
    free, _ = transform_of(features * 0.05, labels)
    capped, _ = transform_of(features * 0.05, labels, max_singular_value=5.0)
    before, after = torch.linalg.svdvals(free), torch.linalg.svdvals(capped)
    assert before[0] > 5 > before[-1]
    torch.testing.assert_close(after, before.clamp_max(5.0))


def test_the_limit_depends_on_the_units_of_the_data() -> None:
    features, labels = example_data(0)
    wide, _ = transform_of(features, labels, max_singular_value=5.0)
    narrow, _ = transform_of(features * 1e-3, labels, max_singular_value=5.0)
    gain = torch.linalg.matrix_norm(narrow * 1e-3, 2) / torch.linalg.matrix_norm(wide, 2)
    assert gain < 0.1


@pytest.mark.parametrize("max_singular_value", [5.0, math.inf])
def test_constant_features_give_zeros(max_singular_value: float) -> None:
    features, labels = example_data(0)
    # 0.1 is not a binary fraction, so its mean over many examples is rounded.
    constant = torch.full((400, 1), 0.1, dtype=torch.float64)
    features = torch.cat([features, constant, torch.zeros(400, 1)], 1)
    matrix, offset = transform_of(features, labels, max_singular_value)
    transformed = features @ matrix.T + offset
    assert transformed.isfinite().all()
    without, without_offset = transform_of(features[:, :5], labels, max_singular_value)
    expected = features[:, :5] @ without.T + without_offset
    if max_singular_value == math.inf:
        torch.testing.assert_close(
            transformed @ transformed.T, expected @ expected.T, rtol=1e-6, atol=1e-6
        )
    assert matrix.abs().max() < 1e6


def test_a_constant_feature_is_known_for_one_in_however_long_a_minibatch() -> None:
    """The roundoff of a sum over a million examples must not look like a variance."""
    labels = torch.zeros(10**6).long()
    varying = torch.randn(10**6, 1, generator=torch.Generator().manual_seed(0)).double()
    features = torch.cat([varying, torch.full_like(varying, 0.1)], 1)
    statistics = statistics_of(features, labels, num_classes=1)
    assert statistics.within[1, 1].sqrt() < 1e-16
    assert statistics.mean[1] == 0.1
    matrix, _ = input_transform(
        statistics.mean, statistics.within, statistics.between, max_singular_value=math.inf
    )
    assert matrix.abs().max() < 1e6


def test_a_copied_feature_is_survived_and_the_limit_keeps_the_matrix_small() -> None:
    features, labels = example_data(0)
    features = torch.cat([features, features[:, :1]], 1)
    matrix, offset = transform_of(features, labels, max_singular_value=5.0)
    assert (features @ matrix.T + offset).isfinite().all()
    assert torch.linalg.svdvals(matrix)[0] <= 5 + 1e-9


def test_fewer_examples_than_features_give_a_finite_transform_within_the_limit() -> None:
    features, labels = example_data(0, num_examples=10, num_features=30, num_classes=3)
    matrix, offset = transform_of(features, labels, max_singular_value=5.0)
    assert matrix.shape == (30, 30)
    assert (features @ matrix.T + offset).isfinite().all()
    assert torch.linalg.svdvals(matrix)[0] <= 5 + 1e-9


def test_the_transform_goes_into_a_network() -> None:
    features, labels = example_data(0)
    transform = transform_of(features, labels, max_singular_value=5.0)
    network = build(5, 12, [(10, 5)], input_transform=transform)
    assert network.input_transform is not None
    mean = network.input_transform(features.float()).mean(0)
    torch.testing.assert_close(mean, torch.zeros(5), rtol=0, atol=1e-5)


def test_data_that_does_not_vary_within_classes_is_refused() -> None:
    features, labels = torch.eye(3), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match="within-class covariance of zero"):
        transform_of(features, labels)


@pytest.mark.parametrize("copies", [2, 3, 7])
@pytest.mark.parametrize("scale", [1e-13, 1.0, 1e12])
def test_copies_of_one_example_a_class_do_not_vary_but_by_roundoff(
    copies: int, scale: float
) -> None:
    features = scale * torch.randn(10, 4, generator=torch.Generator().manual_seed(0)).double()
    statistics = ClassStatistics(4, 10)
    for part in torch.arange(10).repeat(copies).split(7):
        statistics.accumulate(features[part], part)
    with pytest.raises(ValueError, match="within-class covariance of zero, or of roundoff"):
        input_transform(statistics.mean, statistics.within, statistics.between)


@pytest.mark.parametrize(
    "options",
    [
        {"max_singular_value": 0.0},
        {"max_singular_value": -1.0},
        {"max_singular_value": math.nan},
        {"within_class_factor": -0.1},
        {"within_class_factor": math.nan},
    ],
)
def test_options_that_have_no_meaning_are_named(options: dict[str, float]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        input_transform(torch.zeros(2), torch.eye(2), torch.eye(2), **options)


def test_statistics_without_data_are_refused() -> None:
    with pytest.raises(ValueError, match="no data yet"):
        _ = ClassStatistics(3, 2).within


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.ones(4, 2), torch.zeros(4).long(), r"expected \(examples, 3\)"),
        (torch.ones(4, 3), torch.zeros(5).long(), r"labels of shape \(5,\)"),
        (torch.ones(4, 3), torch.zeros(4), "expected integers"),
        (torch.ones(2, 3), torch.tensor([0, 2]), "labels from 0 to 2; expected 0 to 1"),
        (torch.ones(2, 3), torch.tensor([-1, 1]), "labels from -1 to 1"),
        (torch.tensor([[1.0, math.nan, 2.0]]), torch.tensor([0]), "NaN or infinity in 1 of 1"),
    ],
)
def test_a_bad_minibatch_says_what_is_wrong(features: Tensor, labels: Tensor, message: str) -> None:
    statistics = ClassStatistics(3, 2)
    with pytest.raises(ValueError, match=message):
        statistics.accumulate(features, labels)
    assert statistics.num_examples == 0


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.bool]
)
def test_labels_may_be_of_any_integer_type(dtype: torch.dtype) -> None:
    features, labels = example_data(0, 20, num_classes=2)
    expected = statistics_of(features, labels, num_classes=2).state_dict()
    found = statistics_of(features, labels.to(dtype), num_classes=2).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_an_empty_minibatch_changes_nothing() -> None:
    features, labels = example_data(0, 20)
    statistics = statistics_of(features, labels)
    before = statistics.state_dict()
    statistics.accumulate(torch.ones(0, 5), torch.zeros(0).long())
    assert all(torch.equal(before[name], value) for name, value in statistics.state_dict().items())


def test_statistics_of_other_sizes_neither_add_nor_load() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 4\)"):
        _ = ClassStatistics(3, 2) + ClassStatistics(4, 2)
    with pytest.raises(ValueError, match=r"\(2, 4\) for 'class_means'"):
        ClassStatistics(3, 2).load_state_dict(ClassStatistics(4, 2).state_dict())
    with pytest.raises(ValueError, match="nothing for 'counts'"):
        ClassStatistics(3, 2).load_state_dict({})


def test_statistics_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"within of \(2, 2\)"):
        input_transform(torch.zeros(3), torch.eye(2), torch.eye(3))
    with pytest.raises(ValueError, match="not finite"):
        input_transform(torch.zeros(2), torch.eye(2) * math.nan, torch.eye(2))
