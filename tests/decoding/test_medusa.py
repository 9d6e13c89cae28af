import numpy as np
import pytest

from service.decoding.medusa import best

SCORES = np.array([0.5, -1.0, 3.0, 2.0, -7.0, 2.5], dtype=np.float32)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 9])
def test_the_best_are_as_many_as_are_asked_for_and_the_best_comes_first(count: int) -> None:
    assert best(SCORES, count).tolist() == [2, 5, 3, 0, 1, 4][:count]
