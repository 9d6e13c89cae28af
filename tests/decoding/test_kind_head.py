"""The kind head reads a prompt's states and says where they point; files that do not fit are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from service.decoding.kind_head import KindHead, KindHeadWeights, features_of, load_kind_head_weights

WIDTH, FEATURES, SPACE = 4, 3, 2


def weights(**more: torch.Tensor) -> KindHeadWeights:
    parts = {
        "centre": torch.zeros(2 * WIDTH),
        "scale": torch.ones(2 * WIDTH),
        "inner": torch.zeros(FEATURES, 2 * WIDTH),
        "inner_bias": torch.zeros(FEATURES),
        "outer": torch.zeros(SPACE, FEATURES),
        "outer_bias": torch.zeros(SPACE),
        "need": torch.zeros(1, 2 * WIDTH),
        "need_bias": torch.zeros(1),
    }
    return KindHeadWeights(**parts | more)


def test_it_reads_the_mean_of_the_questions_own_tokens_and_the_last_state() -> None:
    states = torch.tensor([[9.0] * WIDTH, [1.0] * WIDTH, [3.0] * WIDTH, [7.0] * WIDTH])

    assert features_of(states).tolist() == [2.0] * WIDTH + [7.0] * WIDTH
    assert features_of(states[-1:]).tolist() == [7.0] * 2 * WIDTH


def test_states_are_normalised_point_and_tell_a_need() -> None:
    inner = torch.zeros(FEATURES, 2 * WIDTH)
    inner[0, 0] = 1.0  # the first number of the mean
    need = torch.zeros(1, 2 * WIDTH)
    need[0, WIDTH] = 2.0  # the first number of the last state
    centre, scale = torch.full((2 * WIDTH,), 1.0), torch.full((2 * WIDTH,), 0.5)
    outer = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    head = KindHead(weights(centre=centre, scale=scale, inner=inner, outer=outer, need=need), "space")

    direction, odds = head.of(torch.tensor([[0.0] * WIDTH, [2.0] * WIDTH, [1.5] * WIDTH]))

    assert direction.tolist() == pytest.approx([torch.nn.functional.gelu(torch.tensor(2.0)).item(), 0.0])
    assert odds == pytest.approx(2.0)
    assert head.of(torch.full((3, WIDTH), 1e6))[1] == pytest.approx(10.0)  # what is far off is cut


def test_files_that_are_no_kind_head_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kind_head.safetensors"
    save_file(vars(weights()), path)
    assert load_kind_head_weights(path).inner.shape == (FEATURES, 2 * WIDTH)

    save_file(vars(weights(outer=torch.zeros(SPACE, FEATURES + 1))), path)
    with pytest.raises(ValueError, match=r"outer has the shape \(2, 4\), not \(2, 3\)"):
        load_kind_head_weights(path)
    save_file({name: part for name, part in vars(weights()).items() if name != "need"}, path)
    with pytest.raises(ValueError, match="no kind head: need"):
        load_kind_head_weights(path)
