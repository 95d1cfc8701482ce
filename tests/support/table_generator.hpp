// A generator without a model: completions come from a table, so that a test knows every token.
//
// A prompt whose first id is p gets the completions table[p][(step + index) mod size], index counted as the generator
// concept asks (first_index + j). Every call is recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::support {

class TableGenerator {
 public:
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  struct Call {
    std::vector<inference::Request> requests;
    inference::DrawKey key;
    std::int64_t max_new_tokens;
  };

  explicit TableGenerator(std::vector<std::vector<data::Completion>> table) : table_(std::move(table)) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key) {
    calls.push_back({{requests.begin(), requests.end()}, key, sampling.max_new_tokens});
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests) {
      const auto& choices = table_.at(static_cast<std::size_t>(request.prompt.at(0)));
      std::vector<data::Completion> group;
      for (std::int64_t j = 0; j < request.count; ++j)
        group.push_back(choices[(key.step + request.first_index + static_cast<std::uint64_t>(j)) % choices.size()]);
      out.push_back(std::move(group));
    }
    return out;
  }

  std::vector<Call> calls;

 private:
  std::vector<std::vector<data::Completion>> table_;
};

inline data::Completion completion(std::vector<data::TokenId> ids, data::Finish finish = data::Finish::stop) {
  data::Completion out;
  out.ids = std::move(ids);
  for (const data::TokenId id : out.ids) out.log_probs.push_back(-0.1F * static_cast<float>(id) - 0.01F);
  out.finish = finish;
  return out;
}

// "3 1 4" for the ids 3 1 4 0: token 0 is the end token and prints as nothing.
inline std::string decode(std::span<const data::TokenId> ids) {
  std::string out;
  for (const data::TokenId id : ids)
    if (id != 0) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

// Prompts 0 … count−1: prompt p has ids {p, 7}, text "prompt p" and the column "answer": "p".
inline std::vector<data::TokenizedPrompt> numbered_prompts(std::size_t count) {
  std::vector<data::TokenizedPrompt> out;
  for (std::size_t p = 0; p < count; ++p)
    out.push_back({.row = static_cast<std::int64_t>(100 + p),
                   .ids = {static_cast<data::TokenId>(p), 7},
                   .prompt = "prompt " + std::to_string(p),
                   .columns = {{"answer", std::to_string(p)}}});
  return out;
}

}  // namespace rlalgo::support
