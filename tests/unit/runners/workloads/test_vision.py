"""What can be said about the models of images and sound without their frameworks."""

import re
from dataclasses import replace

import pytest

from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import WORKLOADS, refusal
from runners.contract.catalogue import vision as catalogue
from runners.workloads import make_workload
from runners.workloads.base import Unsupported
from runners.workloads.vision_twin import fewer

MODELS = catalogue.IMAGES
TORCHVISION = [name for name, model in MODELS.items() if model.library == "torchvision"]
TIMM = sorted(set(MODELS) - set(TORCHVISION))
CONVOLUTIONAL = sorted(name for name, model in MODELS.items() if not model.is_transformer)
TRANSFORMERS = sorted(set(MODELS) - set(CONVOLUTIONAL))
SPEECH = ("hubert-large", "speecht5-asr", "wav2vec2-base", "wavlm-base")


def trial(name: str, image_size: int | None = None, batch: int = 1, **options: bool | int | str) -> TrialSpec:
    size = image_size or WORKLOADS[name].image_size
    workload = WorkloadSpec(name, batch, image_size=size, options=options)
    return TrialSpec(workload, BackendSpec("eager", {}), "float32", "cpu", 1, 0, Protocol())


def test_the_models_of_the_paper_are_there() -> None:
    assert (len(TORCHVISION), len(TIMM)) == (15, 7)
    assert set(SPEECH) == {name for name, info in WORKLOADS.items() if info.family == "speech"}


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_a_convolutional_network_has_a_twin_and_a_layout_to_choose(name: str) -> None:
    assert MODELS[name].twin_width % 16 == 0
    assert refusal(trial(name, channels_last=True)) is None


def test_a_layout_is_not_for_frameworks_that_choose_their_own() -> None:
    asked = replace(trial("resnet18", channels_last=True), backend=BackendSpec("onnxruntime", {}))
    with pytest.raises(Unsupported, match="layout of torch; backend onnxruntime chooses its own"):
        make_workload(asked).build()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_has_narrow_heads_in_its_twin_and_no_layout(name: str) -> None:
    model = MODELS[name]
    assert model.twin["embed_dim"] % model.arguments["num_heads"] == 0
    assert model.twin["embed_dim"] * 16 == model.arguments["embed_dim"]
    assert refusal(trial(name)) is None
    assert "no option channels_last" in (refusal(trial(name, channels_last=True)) or "")


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("resnet50", 1, None),
        ("resnet50", 500, None),
        ("alexnet", 63, None),
        ("alexnet", 62, "image_size of workload alexnet is 63 or more, not 62"),
        ("inception-v3", 64, "is 75 or more, not 64"),
        ("vit-base-16", 240, None),
        ("vit-base-32", 240, "image_size of workload vit-base-32 is a multiple of 32, not 240"),
        ("vit-large-16", 8, "is a multiple of 16, not 8"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_with_what_does(name: str, size: int, words: str | None) -> None:
    problem = refusal(trial(name, size))
    assert problem is None if words is None else words in (problem or "")


@pytest.mark.parametrize(
    ("name", "size", "twin"),
    [
        ("resnet50", 224, 8),
        ("resnet50", 4, 4),
        ("inception-v3", 299, 75),
        ("alexnet", 224, 63),
        ("vit-base-32", 224, 32),
    ],
)
def test_a_twin_takes_two_small_images(name: str, size: int, twin: int) -> None:
    small = make_workload(trial(name, size, batch=8)).shrunk()
    assert (small.batch, small.image_size, small.options["size"]) == (2, twin, "shrunk")
    assert catalogue.problem(small) is None


def test_a_twin_keeps_the_layout() -> None:
    small = make_workload(trial("resnet50", channels_last=True)).shrunk()
    assert small.options["channels_last"] is True
    assert refusal(replace(trial("resnet50"), workload=small)) is None


@pytest.mark.parametrize("name", SPEECH)
def test_a_twin_hears_two_frames(name: str) -> None:
    small = make_workload(trial(name)).shrunk()
    assert small.options == {"size": "shrunk", "audio_samples": 720}
    assert refusal(replace(trial(name), workload=small)) is None
    shortest = make_workload(trial(name, audio_samples=400)).shrunk()
    assert shortest.options["audio_samples"] == 400


@pytest.mark.parametrize(("name", "batches"), [("wav2vec2-base", (2, 2)), ("speecht5-asr", (1, 2))])
def test_a_twin_of_attention_that_takes_views_of_one_example_has_one(name: str, batches: tuple[int, int]) -> None:
    assert tuple(make_workload(trial(name, batch=batch)).shrunk().batch for batch in (1, 8)) == batches


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("wav2vec2-base", {}, (8, 720)),
        ("speecht5-asr", {}, (1, 2640)),
        ("speecht5-asr", {"audio_samples": 400}, (1, 1360)),
    ],
)
def test_the_large_twin_hears_four_times_the_frames(
    name: str, options: dict[str, int], expected: tuple[int, int]
) -> None:
    one = trial(name, batch=1, **options)
    small = make_workload(replace(one, workload=make_workload(one).shrunk()))
    large = small.enlarged()
    assert (large.batch, large.options["audio_samples"]) == expected


def test_the_large_twin_of_a_classifier_takes_eight_images() -> None:
    one = trial("resnet50", 224)
    large = make_workload(replace(one, workload=make_workload(one).shrunk())).enlarged()
    assert (large.batch, large.image_size) == (8, 8)


def test_sound_has_bounds() -> None:
    assert "audio_samples of workload wavlm-base is an integer from 400 to 320000, not 399" in (
        refusal(trial("wavlm-base", audio_samples=399)) or ""
    )


@pytest.mark.parametrize(("channels", "twin"), [(3, 3), (31, 31), (32, 16), (64, 16), (58, 26), (1000, 24)])
def test_a_twin_has_few_channels_and_fills_blocks_as_the_model_does(channels: int, twin: int) -> None:
    assert fewer(channels, 16) == twin
    assert (fewer(channels, 16) % 8 == 0) == (channels % 8 == 0)


@pytest.mark.parametrize(
    ("name", "ends", "others"),
    [
        ("resnet18", "layer4.1.bn2", ("layer4.0.downsample.1", "layer1.0.bn1", "bn1")),
        ("resnet50", "layer1.0.bn3", ("layer1.0.bn2", "layer1.0.downsample.1")),
        ("mobilenet-v2", "features.16.conv.3", ("features.2.conv.3", "features.1.conv.2", "features.18.1")),
        ("mnasnet1-0", "layers.8.1.layers.7", ("layers.8.0.layers.7", "layers.8.1.layers.4", "layers.15")),
        ("efficientnetv2-m", "blocks.6.4.bn3", ("blocks.6.0.bn3", "blocks.6.4.bn2", "blocks.1.0.bn2", "bn2")),
        ("gernet-m", "stages.2.1.conv3_1x1.bn", ("stages.2.0.shortcut.conv.bn", "stages.2.1.conv1_1x1.bn")),
    ],
)
def test_the_norms_at_the_ends_of_branches_are_named(name: str, ends: str, others: tuple[str, ...]) -> None:
    pattern = MODELS[name].branches
    assert pattern is not None
    assert re.search(pattern, ends)
    assert not any(re.search(pattern, other) for other in others)
