// Answers one draw of a pass from its row of logits: by sampling, or by looking up a token that is given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/sampling.hpp>

namespace rlalgo::inference::detail {

// The same where a device draws.
inline constexpr float forbidden = cuda::draw_forbidden;

inline void answer(Draw& draw, std::span<const float> logits, TokenDraw& token_draw) {
  const Scheduled& request = *draw.request;
  const RequestSpec& spec = request.spec;
  const double temperature = spec.log_probs == LogProbKind::model ? 1.0 : spec.sampling.temperature;
  std::int64_t alternatives = spec.top_log_probs;
  if (draw.kind == Draw::Kind::prompt) {
    draw.drawn = token_draw.given(logits, temperature, spec.prompt[static_cast<std::size_t>(draw.index)]);
    const float own = logits[static_cast<std::size_t>(draw.drawn.id)];
    draw.rank = 1 + std::count_if(logits.begin(), logits.end(), [own](float logit) { return logit > own; });
    alternatives = *spec.prompt_log_probs;
  } else if (!spec.given.empty()) {
    draw.drawn = token_draw.given(logits, temperature, spec.given[static_cast<std::size_t>(draw.index)]);
  } else {
    const std::vector<data::TokenId>& ids = request.completion(draw.completion).ids;
    std::span<const float> row = logits;
    if (const bool held = draw.index < spec.min_new_tokens; held || spec.edit_logits) {
      const std::span<float> edited = token_draw.editable(logits);
      if (spec.edit_logits) spec.edit_logits(edited, ids);
      if (held)
        for (const data::TokenId id : request.end_ids) edited[static_cast<std::size_t>(id)] = forbidden;
      row = edited;
    }
    const double u = draw_uniform(spec.key, spec.first_index + static_cast<std::uint64_t>(draw.completion),
                                  spec.first_position + static_cast<std::uint32_t>(draw.index));
    draw.drawn = token_draw(row, spec.sampling, spec.prompt, ids, u);
    if (spec.log_probs == LogProbKind::model)
      draw.drawn.log_prob = token_draw.given(logits, temperature, draw.drawn.id).log_prob;
  }
  if (alternatives > 0) token_draw.most_likely(alternatives, draw.top);
}

}  // namespace rlalgo::inference::detail
