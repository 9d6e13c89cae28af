import pytest

from service.planner.spelling import WORDS_PATH
from service.settings import Settings
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from training.words import word_list


def test_the_service_has_the_list_that_our_data_makes() -> None:
    try:
        tokenizer = ensure_base_weights(Settings().cache_dir) / "tokenizer.json"
    except BaseWeightsError as error:
        pytest.skip(str(error))
    message = f"run `python -m training.words {tokenizer}`"
    assert WORDS_PATH.read_text(encoding="ascii") == word_list(tokenizer), message
