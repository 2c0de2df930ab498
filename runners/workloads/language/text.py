"""What all models of text share: a configuration, random tokens and their mask, and the twin for the dispatch floor."""

from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

from runners.contract import TWIN_GROWTH, TrialSpec, WorkloadSpec
from runners.contract.catalogue import BACKENDS
from runners.contract.catalogue.language import TEXTS, problem
from runners.contract.record import FactValue
from runners.workloads.base import Inputs, Unsupported
from runners.workloads.construction import (
    missing_kernels_unsupported,
    modelling,
    of_transformers,
    without_initialisers_of_transformers,
)
from runners.workloads.language import masks
from runners.workloads.language.attention import choose, chosen
from runners.workloads.tensors import PRELOAD, TensorWorkload

_SHRUNK_TOKENS = 8
_SHRUNK_VOCABULARY = 128
_TORCH_ALONE = ("torch",)


class Text(TensorWorkload):
    """A model of transformers on random tokens."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self.row = TEXTS[spec.workload.name]
        self.preload = (*PRELOAD, "transformers", modelling(self.row.architecture))

    @property
    def is_shrunk(self) -> bool:
        """Whether this is the twin that measures the dispatch floor."""
        return self.options["size"] == "shrunk"

    @property
    def tokens(self) -> int:
        """Tokens per example."""
        length = self.spec.workload.sequence_length
        assert length is not None
        return length

    @property
    def vocabulary(self) -> int:
        """Tokens that there are to draw from."""
        return _SHRUNK_VOCABULARY if self.is_shrunk else self.row.vocabulary

    def settings(self) -> Dict[str, Any]:
        """Arguments of the configuration.

        Raises:
            Unsupported: there is no such model.
        """
        settings = dict(self.row.sizes, vocab_size=self.vocabulary)
        if self.is_shrunk:
            settings.update(self.row.twin)
        return settings

    def construct(self, attention: Optional[str]) -> Any:
        too_long = problem(self.spec.workload)
        if too_long is not None:
            raise Unsupported(too_long)
        model_class = of_transformers(self.row.architecture, self.row.head)
        # Tuples instead of output objects: all backends then run the very same module, without a wrapper
        settings = {"return_dict": False, **self.settings()}
        implementation = choose(model_class, attention)
        if implementation is not None:
            settings["attn_implementation"] = implementation
        with without_initialisers_of_transformers():
            model = model_class(of_transformers(self.row.architecture, "Config")(**settings))
        return self.adapted(model)

    def adapted(self, model: Any) -> Any:
        """The module that takes the inputs by position and returns a tuple of tensors."""
        return model if self.options["mask"] == masks.NONE else masks.with_mask(model)

    def inner(self, module: Any) -> Any:
        """The model within what `adapted` returned."""
        return module if self.options["mask"] == masks.NONE else module.model

    def example(self, generator: Any) -> Inputs:
        tokens = self.random_tokens(generator, self.tokens)
        mask = str(self.options["mask"])
        if mask == masks.NONE:
            return (tokens,)
        # transformers drops a mask that hides nothing: in the twin, whose rows are short, each one hides something
        longest = max(1, self.tokens - 1) if self.is_shrunk else self.tokens
        return masks.masked_example(tokens, mask, generator, self.row.pad_token, longest)

    def random_tokens(self, generator: Any, count: int) -> Any:
        """A row of tokens, none of them the padding token: some models derive positions from that one."""
        import torch

        tokens = torch.randint(self.vocabulary - 1, (1, count), generator=generator)
        return tokens + (tokens >= self.row.pad_token)

    @property
    def is_simpler_for_a_lone_row(self) -> bool:
        """Whether a batch of one is another structure: masks are spread over rows, and runtimes simplify positions."""
        return self.options["mask"] != masks.NONE or BACKENDS[self.spec.backend.name].frameworks != _TORCH_ALONE

    # Whatever the backend, a trial begins with eager calls in its dtype: they find what torch has no kernel for

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        with missing_kernels_unsupported(self.spec.workload.name, self.spec.dtype):
            return super().reference(index, model, double)

    def cost(self, model: Any) -> Dict[str, FactValue]:
        with missing_kernels_unsupported(self.spec.workload.name, self.spec.dtype):
            return super().cost(model)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        inner = self.inner(model)
        facts = super().facts(model)
        facts["input_mask"] = str(self.options["mask"])
        facts["attn_implementation"] = chosen(type(inner), inner.config)
        return facts

    def shrunk(self) -> WorkloadSpec:
        fewest, most = self.row.twin_rows
        if self.is_simpler_for_a_lone_row:
            most = max(most, 2)
        rows = max(fewest, min(self.spec.workload.batch, most))
        return replace(super().shrunk(), batch=rows, sequence_length=self.shrunk_tokens())

    def enlarged(self) -> WorkloadSpec:
        workload = self.spec.workload
        if workload.batch == 1 and (self.is_simpler_for_a_lone_row or self.row.twin_rows[1] > 1):
            return replace(workload, sequence_length=TWIN_GROWTH * self.tokens)
        return super().enlarged()

    def shrunk_tokens(self) -> int:
        """Tokens per example of the twin: few, on the same path through the model."""
        return min(self.tokens, _SHRUNK_TOKENS)
