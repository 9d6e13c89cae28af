import pytest
import torch

from service.decoding.linear import Linear, PackedLinear, has_packed_kernels, linear

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_packed_products_equal_plain_ones(dtype: torch.dtype, rows: int) -> None:
    if not has_packed_kernels(dtype):
        pytest.skip(f"this CPU has no packed kernels for {dtype}")
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(24, 40, generator=generator).to(dtype)
    x = torch.randn(rows, 40, generator=generator).to(dtype)
    residual = torch.randn(rows, 24, generator=generator).to(dtype)
    exact = x.float() @ weight.float().T

    for product in (Linear(weight), PackedLinear(weight)):
        relative, absolute = 4 * torch.finfo(dtype).eps, 16 * torch.finfo(dtype).eps
        torch.testing.assert_close(product(x).float(), exact, rtol=relative, atol=absolute)
        total = product.add_to(residual, x).float()
        torch.testing.assert_close(total, residual.float() + exact, rtol=relative, atol=absolute)


def test_dtypes_without_packed_kernels_use_the_plain_ones() -> None:
    product = linear(torch.eye(3, dtype=torch.float64))

    assert type(product) is Linear
    assert product(torch.ones(1, 3, dtype=torch.float64)).tolist() == [[1.0, 1.0, 1.0]]
