// Rows of the very weights that are trained, drawn in this process (inference::draws_as_trained): their generator's log-probs and the trainer's are the
// same but for rounding. NaN in their place lets a correction (loss::SamplingCorrection) give exactly 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/batch.hpp>

namespace rlalgo::sampler::detail {

// Of the episodes [begin, end), the rows of weights version `version`.
inline void forget_sampling(Generation& generation, std::size_t begin, std::size_t end, std::int64_t version) {
  for (data::Episode& sample : std::span(generation.episodes).subspan(begin, end - begin))
    for (data::Row& r : sample.rows)
      if (r.weights_version == version)
        std::fill(r.sampling_log_probs.begin(), r.sampling_log_probs.end(), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace rlalgo::sampler::detail
