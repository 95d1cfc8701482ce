// Heads of queries or keys by the kernels of norm and rotation, each by itself: what kernels that do both are compared with.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/rms_norm.cuh>
#include <rlalgo/cuda/rotate.cuh>

#include <support/kernels.hpp>

namespace rlalgo::support {

// x [rows, heads, c.dim], in place. `c`: whether there is a norm and how, how wide and in which order the rotation is.
template <class Case, class T>
void norm_and_rotate(const Case& c, float epsilon, const Memory<T>& x, const Memory<T>& weight,
                     const Memory<float>& cosine, const Memory<float>& sine, std::int64_t rows, std::int64_t heads) {
  if (c.norm)
    must_work(cuda::rms_norm({.x = x.data(),
                              .weight = weight.data(),
                              .y = x.data(),
                              .rows = rows * heads,
                              .width = c.dim,
                              .epsilon = epsilon,
                              .one_more = c.one_more,
                              .once = c.once,
                              .element = element_of<T>},
                             nullptr));
  must_work(cuda::rotate({.x = x.data(),
                          .cosine = cosine.data(),
                          .sine = sine.data(),
                          .tokens = rows,
                          .heads = heads,
                          .half = c.half,
                          .width = c.dim,
                          .interleaved = c.interleaved,
                          .element = element_of<T>},
                         nullptr));
}

}  // namespace rlalgo::support
