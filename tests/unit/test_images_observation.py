"""What a look inside an image prints, and what of it is worth recording."""

import json

from orchestrator.environments.observation import Observation, parse


def test_what_is_true_of_one_host_only_is_not_recorded():
    facts = {
        "torch_cuda_version": None,
        "torch_cpu_capability": "AVX2",
        "env_OMP": "1",
        "driver_libcuda": "x",
        "libc": "g",
    }
    printed = "noise\n" + json.dumps({"versions": {"python": "3"}, "facts": facts}) + "\n"
    expected = Observation({"python": "3"}, {"torch_cuda_version": None, "libc": "g"})
    assert parse(printed) == expected
    assert parse(printed + "bye\n7\n{}\n") == expected
