// A conversation on a terminal: lines are the user's turns, /words are commands, Ctrl-C stops an answer.
//
// The engine keeps the prefix of the conversation, so a turn computes what is new alone. A turn that cannot be answered (it leaves
// no room in the context) is taken back, with its error on the screen, and the conversation goes on.
#pragma once

#include <cstdint>
#include <string>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::cli {

struct ChatOptions {
  std::string system;  // empty: none
  std::uint64_t seed = 42;
  inference::SamplingConfig sampling;
  inference::EngineConfig engine = {};  // of one completion at a time, which keeps its prefixes
};

// Until /exit or the end of the input. The exit status of the verb.
int converse(const assembly::LanguageModel& model, const ChatOptions& options);

}  // namespace rlalgo::cli
