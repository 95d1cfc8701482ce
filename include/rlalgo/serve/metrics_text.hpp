// The counts of an engine as text for Prometheus, under vLLM's names.
#pragma once

#include <string>

#include <rlalgo/serve/engine.hpp>

namespace rlalgo::serve {

[[nodiscard]] std::string metrics_text(const Engine::Counts& counts, const std::string& model);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/metrics_text_impl.hpp>
#endif
