// A user's own rollout function from a Python file, in a process of its own, as a generator around a generator.
//
//   f(model, processing_class, prompts, generation_config)   axolotl's: a text for each prompt. `model.generate` draws with
//                                                            the wrapped generator; the texts are tokenized here
//   f(prompts, trainer)                                      TRL's: prompt_ids, completion_ids, logprobs[, env_mask], and
//                                                            further columns for the rewards; generate_rollout_completions
//
// The function is called once per generation (of this rank's prompts, each as often as it has completions). While it works
// it asks for draws, tokens and texts, and is answered between two of its steps; each step may take call_seconds.
//
// A text ends with the end token where the model ended the last text that it was made of; its log-probs are those of the
// weights that drew it, where those are copies (asynchronous generation), else they are not known and the trainer's own count.
// Draws of one call come from random indices first_index·2²⁰ + 0, 1, … in the order in which they are asked for.
//
// Errors: [rlalgo.remote.60] Python cannot be started; [.61] the function cannot be loaded; [.62] it raised; [.63] it
// returned something else than agreed; [.64] it did not answer in time and was killed; [.65] the process ended or answered
// outside the protocol; [.66] tokens that are none of the model's, or more than it has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/python_worker.hpp>

namespace rlalgo::remote {

// Between texts and tokens, and what a function may want to know of the run.
struct RolloutTexts {
  std::function<std::vector<data::TokenId>(const data::Json& prompt)> prompt;  // as the run's own prompts
  std::function<std::vector<data::TokenId>(const std::string& text, bool special)> encode;
  std::function<std::string(std::span<const data::TokenId> ids, bool skip_special)> decode;
  std::function<std::string(const data::Json& messages, bool generation_prompt, const data::Json& tools,
                            const data::Json& variables)>
      render;
  std::int64_t max_positions = 0;  // tokens of prompt and completion together
  std::int64_t vocab_size = 0;
  // {"tokenizer": directory, "base_model", "eos_id", "eos_token", "pad_id", "pad_token", "bos_id", "bos_token"}
  data::Json model = data::Json::object();
  int rank = 0, ranks = 1;
};

class RolloutFunction {
 public:
  using Json = data::Json;
  static constexpr inference::WeightSource weights = inference::WeightSource::erased;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};

  // `function`: "module.function", loaded here. PythonConfig::call_seconds limits each step of its own.
  RolloutFunction(std::string function, PythonConfig config);

  [[nodiscard]] bool draws_texts() const noexcept { return texts_form_; }  // the form whose completions are texts

  // Before generate(); `generator` must outlive this one.
  void draw_from(inference::AnyGenerator& generator, RolloutTexts texts) {
    generator_ = &generator;
    texts_ = std::move(texts);
  }

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key);
  [[nodiscard]] inference::WeightSource source() const { return generator_->source(); }
  [[nodiscard]] bool quantizes() const { return generator_->quantizes(); }

 private:
  struct Call;  // one call of the function: what it drew

  Json ask(Json question, double seconds, const std::string& during);
  Json answered(Call& call, const Json& asked);
  Json drawn(Call& call, const Json& asked);
  data::Completion completion_of(Call& call, const Json& made, const Json& columns, const inference::Request& request);
  void score(Call& call, std::vector<std::vector<data::Completion>>& groups,
             std::span<const inference::Request> requests);
  [[nodiscard]] std::vector<data::TokenId> ids_of(const Json& list, const std::string& what) const;
  [[noreturn]] void fail(const detail::PythonProcess::Failure& failure, double seconds,
                         const std::string& during) const;

  std::string function_;
  PythonConfig config_;
  detail::PythonProcess process_;
  bool texts_form_ = false;
  inference::AnyGenerator* generator_ = nullptr;
  RolloutTexts texts_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/rollout_function_impl.hpp>
#endif
