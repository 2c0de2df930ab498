"""What a compiled program of JAX executes, from its text."""

from runners.backends.jax import executed

PROGRAM = """HloModule jit_jax_func, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %add = f32[2]{0} add(%p, %p)
}

ENTRY %main (Arg_0: f32[2]) -> (f32[2]) {
  %Arg_0 = f32[2]{0} parameter(0)
  %constant.1 = f32[] constant(1)
  %fusion = f32[2]{0} fusion(%Arg_0), kind=kLoop, calls=%fused
  %dot.3 = f32[2,2]{1,0} dot(%fusion, %fusion), lhs_contracting_dims={}, rhs_contracting_dims={}
  %bitcast = f32[4]{0} bitcast(%dot.3)
  ROOT %tuple = (f32[4]{0}) tuple(%bitcast)
}
"""


def test_what_only_names_or_views_data_is_not_executed() -> None:
    assert executed(PROGRAM) == {"fusion": 1, "dot": 1}
