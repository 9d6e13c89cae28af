import json
from pathlib import Path

import pytest

from service.engines.neuron.cores import neuron_cores
from service.engines.triton.repository import REPLICA_FILE, Replica, write_repository

REPLICA = Replica("module:function", {"model_dir": "/a model"}, {"TAG": "x"})


def test_each_replica_has_one_model_of_one_instance(tmp_path: Path) -> None:
    names = write_repository(tmp_path / "models", REPLICA, replicas=3, cores=2)
    assert names == ["peakplan_0", "peakplan_1", "peakplan_2"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == names
    for name in names:
        config = (tmp_path / "models" / name / "config.pbtxt").read_text(encoding="utf-8")
        assert f'name: "{name}"' in config
        assert "instance_group [{ count: 1 kind: KIND_CPU }]" in config
        # Each of these makes Triton hold requests of a one-instance model back.
        assert not {"dynamic_batching", "max_queue_size", "priority_levels", "timeout"} & set(config.split())


def test_each_replica_gets_its_own_neuron_cores(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=3, cores=2)
    written = [Replica.read(tmp_path / f"peakplan_{number}" / "1" / REPLICA_FILE) for number in range(3)]
    assert [one.environment["NEURON_RT_VISIBLE_CORES"] for one in written] == ["0-1", "2-3", "4-5"]
    assert {one.environment["TAG"] for one in written} == {"x"}
    assert all((one.make_source, one.arguments) == (REPLICA.make_source, REPLICA.arguments) for one in written)


@pytest.mark.parametrize(("number", "cores", "said"), [(0, 1, "0"), (3, 1, "3"), (1, 8, "8-15")])
def test_cores_are_named_as_the_runtime_takes_them(number: int, cores: int, said: str) -> None:
    assert neuron_cores(number, cores) == said


def test_writing_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=4, cores=2)
    assert write_repository(tmp_path, REPLICA, replicas=1, cores=2) == ["peakplan_0"]
    assert [path.name for path in tmp_path.iterdir()] == ["peakplan_0"]


def test_the_models_program_is_python_and_finds_our_code(tmp_path: Path) -> None:
    write_repository(tmp_path, REPLICA, replicas=1, cores=2)
    program = (tmp_path / "peakplan_0" / "1" / "model.py").read_text(encoding="utf-8")
    compile(program, "model.py", "exec")
    root = program.partition("sys.path.insert(0, ")[2].partition(")")[0]
    assert (Path(json.loads(root.replace("'", '"'))) / "service" / "engines" / "triton" / "host.py").is_file()


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "resnet").mkdir()
    with pytest.raises(ValueError, match="resnet"):
        write_repository(tmp_path, REPLICA, replicas=1, cores=2)
    assert [path.name for path in tmp_path.iterdir()] == ["resnet"]


@pytest.mark.parametrize("name", ["two words", "a;b", "$HOME", "é"])
def test_a_path_that_a_shell_would_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="shell"):
        write_repository(tmp_path / name, REPLICA, replicas=1, cores=2)
    assert not (tmp_path / name).exists()
