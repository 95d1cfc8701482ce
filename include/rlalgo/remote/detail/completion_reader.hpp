// Completions out of the JSON of a generation server, whatever its protocol: ids, log-probs, how they ended.
//
// Errors: [rlalgo.remote.10] an answer of the wrong shape; [.11] a token id outside the model's vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::remote::detail {

// What both protocols call alike.
[[nodiscard]] nlohmann::ordered_json sampling_fields(const inference::SamplingConfig& sampling);

class CompletionReader {
 public:
  using Json = nlohmann::ordered_json;

  // `where` names the call in errors; `vocab_size` 0: ids are not checked.
  CompletionReader(std::string where, std::int64_t vocab_size) : where_(std::move(where)), vocab_size_(vocab_size) {}

  // `reason`: what the server says of its end, or anything else.
  [[nodiscard]] data::Completion completion_of(const Json& ids, const Json& reason,
                                               const inference::SamplingConfig& sampling) const;
  // Entries of `values` by their place where `tokens` is null, else by the id of the token. Empty where one is null.
  [[nodiscard]] std::vector<float> log_probs_of(const std::vector<data::TokenId>& ids, const Json& values,
                                                const Json* tokens) const;
  [[nodiscard]] const Json& list(const Json& answer, const char* key) const;

  [[noreturn]] void wrong(const std::string& found, const std::string& expected) const;
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

 private:
  std::string where_;
  std::int64_t vocab_size_;
};

}  // namespace rlalgo::remote::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/completion_reader_impl.hpp>
#endif
