"""The images of the catalogue as a trial finds them: isolated, with the versions of their locks, and working."""

import json
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    lock_differences,
    prepare,
    read_lock,
)

pytestmark = pytest.mark.engine
CATALOGUE = Path(__file__).parents[2] / "docker/images.yaml"

LIST = ["python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]

# PyPI's torchvision is built for a torch that knows two operators more than the one for processors does.
SCHEMAS = """
import torch
if torch.__version__.endswith("+cpu"):
    torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.library.define("torchvision::qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
# One small network of each source, through the exporter and the runtime that both eras have.
WORK = """
import io, json, platform, timm, torchvision, onnxruntime
from transformers import BertConfig, BertModel
tiny = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=100)
image = torch.zeros(1, 3, 64, 64)
image_net = timm.create_model("resnet18").eval()
options = {} if torch.__version__.startswith("1.") else {"dynamo": False}
stream = io.BytesIO()
with torch.no_grad():
    states = BertModel(BertConfig(**tiny)).eval()(torch.zeros(1, 8, dtype=torch.long))[0]
    pictures = torchvision.models.resnet18().eval()(image)
    eager = image_net(image)
    torch.onnx.export(image_net, (image,), stream, opset_version=13, **options)
session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
(answer,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
print(json.dumps({
    "python": platform.python_version(),
    "shapes": [list(states.shape), list(pictures.shape), list(eager.shape)],
    "error": float(abs(answer - eager.numpy()).max()),
    "cuda": torch.cuda.is_available(),
}))
"""
OPENVINO = """
import numpy, openvino
from openvino import opset13 as ops
given = ops.parameter([2, 3], dtype=numpy.float32)
compiled = openvino.Core().compile_model(openvino.Model([ops.relu(given)], [given]), "CPU")
print(float(compiled([numpy.full((2, 3), 2.0, dtype=numpy.float32)])[0].sum()))
"""


@pytest.fixture(params=["cpu", "cpu-2022"])
def image(request: pytest.FixtureRequest) -> tuple[str, BuiltImage]:
    """Each environment with its image."""
    built: BuiltImage = request.getfixturevalue(f"{request.param.replace('-', '_')}_image")
    return request.param, built


def run(client: DockerClient, image: BuiltImage, command: list[str]) -> str:
    """The output of a command in a container without a network, rights or a disk that it could write to."""
    output: bytes = client.containers.run(
        image.image_id,
        command,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "exec"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=256,
        mem_limit="4g",
        init=True,
        remove=True,
    )
    return output.decode()


def test_an_image_holds_the_versions_of_its_lock_and_make_images_finds_it(
    client: DockerClient, image: tuple[str, BuiltImage]
):
    name, built = image
    pins = read_lock(Catalogue.load(CATALOGUE).entry(name).lock_path)
    assert lock_differences(pins, json.loads(run(client, built, LIST))) == []
    # `make images` makes these two and no others, and finds what is there
    found = prepare([], CATALOGUE, lambda _: None)
    assert found.keys() == {"cpu", "cpu-2022"}
    assert found[name] == built


def test_an_image_runs_models_of_every_library(client: DockerClient, image: tuple[str, BuiltImage]):
    name, built = image
    seen = json.loads(run(client, built, ["python", "-W", "ignore", "-c", SCHEMAS + WORK]).splitlines()[-1])
    assert seen["python"].startswith(Catalogue.load(CATALOGUE).entry(name).python + ".")
    assert seen["shapes"] == [[1, 8, 32], [1, 1000], [1, 1000]]
    assert seen["error"] < 1e-3
    assert not seen["cuda"]


def test_openvino_runs_in_the_environment_that_has_it(client: DockerClient, cpu_image: BuiltImage):
    assert run(client, cpu_image, ["python", "-c", OPENVINO]) == "12.0\n"
