"""What is read from the listing of a program of TVM's virtual machine."""

from runners.backends.tvm import launches

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


def test_kernels_are_launches_and_the_own_instructions_of_the_machine_are_none() -> None:
    assert launches(LISTING) == 3
    assert launches("@main:\n  ret   %0\n") == 0
