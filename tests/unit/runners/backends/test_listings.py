"""What compiled programs execute, from their listings."""

from runners.backends.jax import executed
from runners.backends.tvm import launches

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
LISTING = """\
@main:
  call  vm.builtin.check_tensor_info in: %0, i2, c[0], c[1] dst: %void
  call  vm.builtin.alloc_tensor in: %1, i0, c[5], c[0] dst: %2
  call  strided_slice    in: c[6], %2     dst: %void
  call  fused_matmul_add2 in: %3, %2, %5   dst: %void
  call  fused_matmul_add2 in: %5, %2, %6   dst: %void
  call  vm.builtin.null_value in:              dst: %3
  ret   %5
"""


def test_what_only_names_or_views_data_is_not_executed() -> None:
    assert executed(PROGRAM) == {"fusion": 1, "dot": 1}


def test_kernels_are_launches_and_the_own_instructions_of_the_machine_are_none() -> None:
    assert launches(LISTING) == 3
    assert launches("@main:\n  ret   %0\n") == 0
