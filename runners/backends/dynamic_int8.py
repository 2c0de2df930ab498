"""Linear layers with 8-bit weights; activations are quantised as they come (dynamic quantisation)."""

import warnings
from typing import Any, Dict, Optional, cast

from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Tolerance, Unsupported


class DynamicInt8(TorchBackend):
    """`torch.ao.quantization.quantize_dynamic` on every `torch.nn.Linear`; all else stays in float32.

    The tolerance comes from measurements, with two seeds, on 14 models of text and ResNet-50, with random weights: the
    relative L2 error was 0.015 to 0.061, the largest error 0.11 of the largest output, the cosine at least 0.998. It
    leaves a factor of two to three for other models, and an operator that is wrong errs by the size of the output.
    """

    tolerance = Tolerance(relative_l2=0.2, min_cosine=0.99)

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        try:
            from torch.ao.quantization import quantize_dynamic
        except ImportError as error:
            raise Unsupported("torch %s has no torch.ao.quantization" % torch.__version__) from error
        with preparing("quantize_dynamic"), warnings.catch_warnings():
            # Deprecated as a whole: its successor is a package of its own
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.ao.quantization")
            quantised = quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
        names = {name for name, part in quantised.named_modules() if "quantized.dynamic" in type(part).__module__}
        replaced = [module for name, module in model.named_modules() if name in names]
        if not replaced:
            raise Unsupported("the model has no torch.nn.Linear: nothing is quantised")
        # Weights of 8 bits stand behind a method: a model that reads those of its layers finds no tensor
        with preparing("a call of the quantised model"), self.execution():
            quantised(*self.workload.inputs(0))
        self._quantised = len(replaced)
        self._share = sum(m.weight.numel() for m in replaced) / sum(p.numel() for p in model.parameters())
        return cast(Call, quantised)

    def facts(self) -> Dict[str, FactValue]:
        import torch

        return dict(
            super().facts(),
            quantized_modules=self._quantised,
            quantized_weight_share=self._share,
            quantization_engine=str(torch.backends.quantized.engine),
        )
