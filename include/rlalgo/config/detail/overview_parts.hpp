// How an Overview is filled in: from the rows of a method, from the model, and by measuring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/overview.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/memory_limit.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::config::detail {

[[nodiscard]] inline std::int64_t as_count(std::size_t size) { return static_cast<std::int64_t>(size); }

// Every value of `config` and `model` that the callback reads outlives it.
[[nodiscard]] inline Overview begin_overview(const RunConfig& config, const LanguageModel& model,
                                             const run::LoopConfig& loop) {
  Overview o;
  o.micro_batch_size = config.micro_batch_size;
  o.steps = loop.max_steps;
  const auto every = [](const run::Cadence& cadence) {
    return cadence.unit == run::Cadence::Unit::steps ? "every " + count_text(cadence.every) + " steps"
                                                     : std::string("after each epoch");
  };
  if (loop.eval.unit != run::Cadence::Unit::never || loop.eval_first)
    o.schedule = std::string("evaluation ") + (loop.eval_first ? "before the first step" : "") +
                 (loop.eval_first && loop.eval.unit != run::Cadence::Unit::never ? " and " : "") +
                 (loop.eval.unit != run::Cadence::Unit::never ? every(loop.eval) : "") + "; ";
  o.schedule += loop.save.unit == run::Cadence::Unit::never ? "no checkpoints" : "checkpoints " + every(loop.save);
  o.output_dir = config.output_dir;
  o.decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); };
  if (config.world != nullptr) o.ranks = config.world->size();
  return o;
}

[[nodiscard]] inline Overview overview_of_prompts(const RunConfig& config, const LanguageModel& model,
                                                  const run::LoopConfig& loop, const sampler::Geometry& geometry,
                                                  const std::vector<data::TokenizedPrompt>& prompts,
                                                  std::int64_t held_out) {
  Overview o = begin_overview(config, model, loop);
  o.unit = "prompts";
  o.rows = as_count(prompts.size());
  o.evaluation_rows = held_out;
  for (const data::TokenizedPrompt& prompt : prompts) {
    o.tokens += as_count(prompt.ids.size());
    o.longest = std::max(o.longest, as_count(prompt.ids.size()));
  }
  const std::int64_t rows = geometry.micro_batch_size * geometry.gradient_accumulation_steps;
  o.completions_per_row = geometry.num_generations;
  o.rows_per_step = std::max<std::int64_t>(1, rows / geometry.num_generations);
  o.completion_length = config.trl.has_turns() || config.trl.rollout_func
                            ? config.trl.max_completion_length
                            : config.trl.max_new_tokens.value_or(config.trl.max_completion_length);
  o.micro_batch_tokens =
      (geometry.micro_batch_size + geometry.num_generations - 1) / geometry.num_generations * o.longest +
      geometry.micro_batch_size * o.completion_length;
  o.steps_per_epoch = static_cast<double>(geometry.micro_steps_per_epoch(o.rows)) /
                      static_cast<double>(geometry.gradient_accumulation_steps);
  const std::string then = "up to " + count_text(o.completion_length) + " tokens are drawn, " +
                           count_text(geometry.num_generations) + " times";
  o.samples = [&prompts, then](std::size_t limit) {
    std::vector<ShownRow> out;
    for (std::size_t i = 0; i < std::min(limit, prompts.size()); ++i) {
      ShownRow row{.title = "prompt " + std::to_string(prompts[i].row), .ids = prompts[i].ids, .then = then};
      row.loss.assign(row.ids.size(), 0);
      out.push_back(std::move(row));
      if (prompts[i].answer_ids.empty()) continue;
      ShownRow truth{.title = "ground truth of it", .ids = prompts[i].answer_ids, .loss = prompts[i].answer_mask};
      if (truth.loss.empty()) truth.loss.assign(truth.ids.size(), 1);
      out.push_back(std::move(truth));
    }
    return out;
  };
  return o;
}

[[nodiscard]] inline Overview overview_of_answers(const RunConfig& config, const LanguageModel& model,
                                                  const run::LoopConfig& loop,
                                                  const std::shared_ptr<data::AnswerSet>& answers,
                                                  const data::AnswerSet* held_out) {
  Overview o = begin_overview(config, model, loop);
  const std::size_t each = answers->per_example();
  o.unit = each == 2 ? "pairs" : "rows";
  o.rows = as_count(answers->examples());
  if (held_out != nullptr) o.evaluation_rows = as_count(held_out->examples());
  o.tokens = as_count(answers->all_tokens());
  std::int64_t largest = 0;
  for (std::size_t e = 0; e < answers->examples(); ++e) {
    std::int64_t tokens = 0;
    for (std::size_t k = 0; k < each; ++k) {
      tokens += answers->tokens(e * each + k);
      o.longest = std::max(o.longest, answers->tokens(e * each + k));
    }
    largest = std::max(largest, tokens);
  }
  o.rows_per_step = config.micro_batch_size * config.gradient_accumulation_steps;
  o.steps_per_epoch = static_cast<double>(o.rows) / static_cast<double>(o.rows_per_step);
  o.micro_batch_tokens = config.micro_batch_size * largest;
  o.samples = rows_of_answers(answers);
  return o;
}

[[nodiscard]] inline Overview overview_of_documents(const RunConfig& config, const LanguageModel& model,
                                                    const run::LoopConfig& loop,
                                                    const std::vector<data::Document>& documents,
                                                    std::int64_t held_out) {
  Overview o = begin_overview(config, model, loop);
  o.unit = "documents";
  o.rows = as_count(documents.size());
  o.evaluation_rows = held_out;
  for (const data::Document& document : documents) {
    o.tokens += as_count(document.ids.size());
    o.longest = std::max(o.longest, as_count(document.ids.size()));
  }
  o.rows_per_step = config.micro_batch_size * config.gradient_accumulation_steps;
  o.steps_per_epoch = static_cast<double>(o.rows) / static_cast<double>(o.rows_per_step);
  const EbftConfig& e = config.ebft;
  const std::int64_t blocks =
      std::max<std::int64_t>(0, o.longest - e.context_length) / std::max<std::int64_t>(1, e.stride);
  o.micro_batch_tokens = config.micro_batch_size * (o.longest + blocks * e.n_samples_per_prompt * e.generate_max_len);
  const std::string then = count_text(e.n_samples_per_prompt) + " blocks of " + count_text(e.generate_max_len) +
                           " tokens are drawn at every " + count_text(e.stride) + ". token";
  o.samples = [&documents, then](std::size_t limit) {
    std::vector<ShownRow> out;
    for (std::size_t i = 0; i < std::min(limit, documents.size()); ++i)
      out.push_back({.title = "document " + std::to_string(documents[i].row),
                     .ids = documents[i].ids,
                     .loss = documents[i].loss_mask,
                     .then = then});
    return out;
  };
  return o;
}

// Bytes of the optimizer for a parameter of its own.
[[nodiscard]] inline double optimizer_bytes(const RunConfig& config) {
  const double master = config.bfloat16 ? 4.0 : 0.0;
  switch (optimizer_named(config.optimizer).rule) {
    case UpdateRule::lion:
      return master + 4.0;
    case UpdateRule::adafactor:
      return master;
    case UpdateRule::muon:
      return master + 4.0;
    case UpdateRule::adamw:
      break;
  }
  return master + (moments_of(config.optimizer) == Moments::blockwise_8bit ? 2.1 : 8.0);
}

// What the backward pass keeps of a token in all layers, in numbers. `away`: the inputs of layers lie elsewhere.
[[nodiscard]] inline double kept_numbers(const model::DecoderConfig& c, bool checkpointing, bool away) {
  double all = 0.0, largest = 0.0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const model::ExpertSpec& experts = c.spec(layer).experts;
    const auto width = static_cast<double>(experts.count > 0 ? experts.chosen * experts.width + experts.shared_width
                                                             : c.intermediate_size);
    const double numbers = 2.0 * static_cast<double>(c.hidden_size) +
                           2.0 * static_cast<double>((c.heads + c.kv_heads) * c.head_dim) + 2.0 * width;
    all += !checkpointing ? numbers : away ? 0.0 : static_cast<double>(c.hidden_size);
    largest = std::max(largest, numbers);
  }
  return all + (checkpointing ? largest : 0.0);
}

// `copied`: whether a reference of its own stands beside the policy.
inline void add_model(Overview& o, const RunConfig& config, model::Decoder& decoder, bool copied) {
  double weights = 0.0, trained = 0.0, gradients = 0.0;
  model::visit_weights(
      decoder.config(), decoder.weights(),
      [&](const std::string&, const tensor::Tensor& value, const std::vector<std::int64_t>& shape, model::WeightRole) {
        o.parameters += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
        if (value.defined()) weights += static_cast<double>(value.nbytes());
      });
  for (const model::Parameter& p : decoder.parameters()) {
    o.trained += p.value.numel();
    trained += static_cast<double>(p.value.numel());
    gradients += static_cast<double>(p.value.nbytes());
  }
  if (decoder.adapter() != nullptr) {
    o.training = "lora, r " + std::to_string(decoder.adapter()->config.r);
    weights += gradients;
    o.parameters += o.trained;
  }
  const double element = config.bfloat16 ? 2.0 : 4.0;
  const char* const why = !config.was_set("bf16") && !config.was_set("bfloat16") ? " (bf16 is not set)"
                          : config.keys.is_object() && config.keys.contains("bf16") && config.keys["bf16"] == "auto"
                              ? config.bfloat16 ? " (bf16: auto, and the device multiplies it)"
                                                : " (bf16: auto, and this CPU does not multiply bfloat16)"
                          : config.bfloat16 ? " (bf16: true)"
                                            : " (bf16: false)";
  o.dtype = (config.bfloat16 ? "bfloat16" : "float32") + std::string(why);
  o.device = config.device;
  if (device_of(config).is_cpu()) {
    o.device += ", " + std::to_string(tensor::available_threads()) + " threads";
    o.memory_limit = static_cast<double>(os::memory_limit());
  }
  const model::DecoderConfig& c = decoder.config();
  const double slots = static_cast<double>(std::min<std::int64_t>(
      inference::SchedulerConfig{}.max_slots, std::max<std::int64_t>(1, o.rows_per_step * o.completions_per_row)));
  const double drawing =
      o.completions_per_row == 0 || config.trl.generates_elsewhere()
          ? 0.0
          : slots * static_cast<double>((o.longest + o.completion_length) * c.layers * 2 * c.kv_heads * c.head_dim) *
                element;
  const bool away =
      config.activation_offloading == "disk" || (config.activation_offloading == "host" && !decoder.device().is_cpu());
  const double backward = static_cast<double>(o.micro_batch_tokens) *
                          kept_numbers(c, config.gradient_checkpointing, away) * element / static_cast<double>(o.ranks);
  o.memory = {{"weights", weights},
              {"gradients", gradients},
              {"optimizer", trained * optimizer_bytes(config)},
              {"reference", copied ? weights : 0.0},
              {drawing > backward ? "keys and values" : "backward pass", std::max(drawing, backward)},
              {"program", 160e6}};
}

// Times of a step, by passes over rows of this run's lengths and a few drawn tokens. Nothing is trained.
inline void measure(Overview& o, const RunConfig& config, model::Decoder& decoder) {
  if (o.ranks > 1 || config.trl.rollout_func || config.trl.has_turns() || config.trl.agents || o.rows == 0) return;
  const c10::AutoGradMode no_gradient(false);
  const std::vector<ShownRow> shown = o.samples(4);
  if (shown.empty() || shown.front().ids.size() < 2) return;
  constexpr std::int64_t most_tokens = 512;
  const std::vector<data::TokenId>& ids = shown.front().ids;
  const auto row = [&](std::int64_t length) {
    std::vector<data::TokenId> out;
    while (as_count(out.size()) < length) out.push_back(ids[out.size() % ids.size()]);
    return out;
  };
  const std::int64_t length = std::clamp<std::int64_t>(o.longest + o.completion_length, 2, most_tokens);
  const std::vector<data::TokenId> prompt = row(1), completion = row(length - 1);
  const model::Sequence sequence{prompt, completion};
  const auto pass = [&] { (void)decoder.score(model::build_tree(std::span(&sequence, 1)), {}); };
  pass();
  const os::Stopwatch watch;
  pass();
  const double a_token = watch.seconds() / static_cast<double>(length);
  const double rows = static_cast<double>(o.rows_per_step);
  const double mean = static_cast<double>(o.tokens) / static_cast<double>(o.rows);
  const double tokens = rows * (mean + static_cast<double>(o.completions_per_row * o.completion_length));
  const bool compares = is_preference(config) ? needs_reference(config) : config.beta != 0.0;
  const double passes = 3.0 + (config.gradient_checkpointing ? 1.0 : 0.0) + (compares ? 1.0 : 0.0);
  o.training_seconds = tokens * a_token * passes;
  if (o.completions_per_row == 0 || config.trl.generates_elsewhere()) return;
  constexpr std::int64_t drawn = 8;
  const std::int64_t all = o.rows_per_step * o.completions_per_row;
  const std::int64_t slots = std::min<std::int64_t>(inference::SchedulerConfig{}.max_slots, all);
  inference::LocalEngine engine(decoder.config(), decoder.weights(), {.max_slots = slots});
  const inference::Request request{.prompt = row(std::max<std::int64_t>(2, static_cast<std::int64_t>(mean))),
                                   .count = slots};
  const auto draw = [&](std::int64_t count) {
    const os::Stopwatch drawing;
    (void)engine.generate(std::span(&request, 1), {.max_new_tokens = count, .stop_ids = {}}, {.seed = 1});
    return drawing.seconds();
  };
  (void)draw(1);
  const double one = draw(1);
  const double each = std::max(0.0, draw(drawn) - one) / static_cast<double>(drawn - 1);
  const double waves = static_cast<double>((all + slots - 1) / slots);
  o.generation_seconds = waves * (one + each * static_cast<double>(o.completion_length));
}

// What is told before the first step; true: a dry run ends here.
[[nodiscard]] inline bool plans(Overview& overview, const RunConfig& config, model::Decoder& decoder, bool copied,
                                const OtherTask* task, const TrainMessages& messages) {
  if (evaluates(task)) return false;
  if (messages.planned) add_model(overview, config, decoder, copied);
  if (task != nullptr) measure(overview, config, decoder);
  if (messages.planned) messages.planned(overview);
  return task != nullptr;
}

}  // namespace rlalgo::config::detail
