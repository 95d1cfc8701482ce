// Lines answered by the engine: requests of all lines that are there run side by side, each with its own sampling, and
// new lines join as completions end. A line's answer is the same bits whatever runs beside it (scheduler.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/request.hpp>

#include "json_lines.hpp"

namespace rlalgo::cli {

struct EngineWork {
  inference::RequestSpec request;  // but for on_end
  std::function<void(Answers::Turn&, inference::RequestResult&&)> answer;
};

// What a line asks of the engine; none where its turn has the answer already. Raises where the line is wrong.
using EngineTask = std::function<std::optional<EngineWork>(const Line&, Answers::Turn&)>;

// `batch`: completions under way at a time. As many again wait their turn, so that a slot that becomes free is taken.
int answer_by_engine(const LineModel& model, std::int64_t batch, const EngineTask& task,
                     inference::EngineConfig engine = {});

}  // namespace rlalgo::cli
