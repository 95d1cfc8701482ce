// Where the rows of an expert's three maps are among those of the two that PEFT, transformers and gpt-oss's files know.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

struct ExpertRows {
  std::int64_t first, step, count;
};

struct ExpertMap {
  std::string_view name;    // of the expert's map
  std::string_view joined;  // of the one that it is a part of
  ExpertRows rows;
  std::int64_t all_rows, columns;  // of the joined map of one expert, out and in
};

// gate, up and down.
[[nodiscard]] inline std::array<ExpertMap, 3> expert_maps(const ExpertSpec& e, std::int64_t hidden) {
  const std::int64_t width = e.width;
  const bool in_turn = e.joined_files;
  return {{{e.gate_proj, "gate_up_proj", {0, in_turn ? 2 : 1, width}, 2 * width, hidden},
           {e.up_proj, "gate_up_proj", {in_turn ? 1 : width, in_turn ? 2 : 1, width}, 2 * width, hidden},
           {e.down_proj, "down_proj", {0, 1, hidden}, hidden, width}}};
}

[[nodiscard]] inline tensor::Tensor rows_of(const tensor::Tensor& x, const ExpertRows& rows) {
  return x.slice(0, rows.first, rows.first + rows.step * rows.count, rows.step);
}

}  // namespace rlalgo::model::detail
