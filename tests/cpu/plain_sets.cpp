// The tables of plain_sets.hpp, optimised: a sum of theirs is one number after the other.
#include "plain_sets.hpp"

namespace rlalgo::cpu {

const Kernels plain8_kernels = plain8::table("plain, 8 lanes", portable::linear_int8);

const Kernels plain16_kernels = [] {
  Kernels all = plain16::table("plain, 16 lanes", portable::linear_int8);
  all.linear_f32 = plain16::linear_by_panels;
  return all;
}();

}  // namespace rlalgo::cpu
