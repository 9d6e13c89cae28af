import ctypes

import pytest

from service.decoding.native.library import NativeUnavailableError, load_kernels


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """Load the int8 kernels, where this machine supports them."""
    try:
        return load_kernels().functions
    except NativeUnavailableError as error:
        pytest.skip(f"the int8 kernels cannot run here: {error}")
