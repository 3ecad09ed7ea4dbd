from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from natgrad.optim.native import Kernels, kernels_in_use, use_native_kernels
from natgrad.optim.native import kernels as kernels_file
from tests.conftest import has_compiler
from tests.optim.native import calls_of


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small are faster on one thread, all the more on a busy machine."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session")
def compiler() -> None:
    if not has_compiler():
        pytest.skip("the native kernels need a C compiler, and there is none")


@pytest.fixture(scope="session")
def kernels(compiler: None) -> Kernels:
    use_native_kernels()
    kernels = kernels_in_use()
    use_native_kernels(False)
    assert kernels is not None
    return kernels


@pytest.fixture
def native_kernels(kernels: Kernels) -> Iterator[None]:
    use_native_kernels()
    yield
    use_native_kernels(False)


@pytest.fixture(params=["torch", "native"])
def without_and_with_kernels(request: pytest.FixtureRequest) -> None:
    """A test twice."""
    if request.param == "native":
        request.getfixturevalue("native_kernels")


@pytest.fixture(scope="module", params=["torch", "native"])
def by_torch_and_by_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test of a module twice; then, all its float32 products are of the native kernels."""
    if request.param == "torch":
        yield
        return
    request.getfixturevalue("kernels")
    with pytest.MonkeyPatch.context() as monkeypatch:
        products = calls_of("multiply", monkeypatch)
        monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
        use_native_kernels()
        yield
        use_native_kernels(False)
    assert products
