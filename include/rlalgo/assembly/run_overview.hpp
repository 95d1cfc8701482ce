// How an Overview (overview.hpp) is filled in: from the rows of a method, from the model, and by measuring.
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

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/memory_estimate.hpp>
#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/memory_limit.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/sampler/geometry.hpp>
#include <rlalgo/sampler/strided_blocks.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::assembly {

namespace detail {

[[nodiscard]] inline std::int64_t as_count(std::size_t size) { return static_cast<std::int64_t>(size); }

[[nodiscard]] inline Overview begin_overview(const LanguageModel& model, const run::LoopConfig& loop,
                                             std::int64_t ranks) {
  Overview o;
  o.micro_batch_size = loop.train_batch_size;
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
  o.output_dir = loop.output_dir.string();
  o.decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); };
  o.ranks = ranks;
  return o;
}

}  // namespace detail

// Of completions of prompts, of so many tokens at most. What is given is read later, by the overview's functions.
[[nodiscard]] inline Overview overview_of(const LanguageModel& model, const run::LoopConfig& loop, std::int64_t ranks,
                                          const sampler::Geometry& geometry, std::int64_t completion_length,
                                          const std::vector<data::TokenizedPrompt>& prompts, std::size_t held_out) {
  Overview o = detail::begin_overview(model, loop, ranks);
  o.unit = "prompts";
  o.rows = detail::as_count(prompts.size());
  o.evaluation_rows = detail::as_count(held_out);
  for (const data::TokenizedPrompt& prompt : prompts) {
    o.tokens += detail::as_count(prompt.ids.size());
    o.longest = std::max(o.longest, detail::as_count(prompt.ids.size()));
  }
  const std::int64_t rows = geometry.micro_batch_size * geometry.gradient_accumulation_steps;
  o.completions_per_row = geometry.num_generations;
  o.rows_per_step = std::max<std::int64_t>(1, rows / geometry.num_generations);
  o.completion_length = completion_length;
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

// Of answers.
[[nodiscard]] inline Overview overview_of(const LanguageModel& model, const run::LoopConfig& loop, std::int64_t ranks,
                                          std::int64_t rows_per_step, const std::shared_ptr<data::AnswerSet>& answers,
                                          const data::AnswerSet* held_out) {
  Overview o = detail::begin_overview(model, loop, ranks);
  const std::size_t each = answers->per_example();
  o.unit = each == 2 ? "pairs" : "rows";
  o.rows = detail::as_count(answers->examples());
  if (held_out != nullptr) o.evaluation_rows = detail::as_count(held_out->examples());
  o.tokens = detail::as_count(answers->all_tokens());
  std::int64_t largest = 0;
  for (std::size_t e = 0; e < answers->examples(); ++e) {
    std::int64_t tokens = 0;
    for (std::size_t k = 0; k < each; ++k) {
      tokens += answers->tokens(e * each + k);
      o.longest = std::max(o.longest, answers->tokens(e * each + k));
    }
    largest = std::max(largest, tokens);
  }
  o.rows_per_step = rows_per_step;
  o.steps_per_epoch = static_cast<double>(o.rows) / static_cast<double>(o.rows_per_step);
  o.micro_batch_tokens = loop.train_batch_size * largest;
  o.samples = rows_of_answers(answers);
  return o;
}

// Of blocks at the anchors of documents.
[[nodiscard]] inline Overview overview_of(const LanguageModel& model, const run::LoopConfig& loop, std::int64_t ranks,
                                          const sampler::StridedConfig& blocks_of,
                                          const std::vector<data::Document>& documents, std::size_t held_out) {
  Overview o = detail::begin_overview(model, loop, ranks);
  o.unit = "documents";
  o.rows = detail::as_count(documents.size());
  o.evaluation_rows = detail::as_count(held_out);
  for (const data::Document& document : documents) {
    o.tokens += detail::as_count(document.ids.size());
    o.longest = std::max(o.longest, detail::as_count(document.ids.size()));
  }
  o.rows_per_step = blocks_of.micro_batch_size * blocks_of.gradient_accumulation_steps;
  o.steps_per_epoch = static_cast<double>(o.rows) / static_cast<double>(o.rows_per_step);
  const sampler::StridedConfig& e = blocks_of;
  const std::int64_t blocks =
      std::max<std::int64_t>(0, o.longest - e.context_length) / std::max<std::int64_t>(1, e.stride);
  o.micro_batch_tokens = e.micro_batch_size * (o.longest + blocks * e.samples * e.generate_max_len);
  const std::string then = count_text(e.samples) + " blocks of " + count_text(e.generate_max_len) +
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

// `copied`: whether a reference of its own stands beside the policy.
inline void add_model(Overview& o, const EstimateConfig& config, model::Decoder& decoder, bool copied) {
  model::visit_weights(
      decoder.config(), decoder.weights(),
      [&](const std::string&, const tensor::Tensor&, const std::vector<std::int64_t>& shape, model::WeightRole) {
        o.parameters += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
      });
  for (const model::Parameter& p : decoder.parameters()) o.trained += p.value.numel();
  if (decoder.adapter() != nullptr) {
    o.training = "lora, r " + std::to_string(decoder.adapter()->config.r);
    o.parameters += o.trained;
  }
  o.dtype = config.dtype;
  o.device = decoder.device().str();
  if (decoder.device().is_cpu()) {
    o.device += ", " + std::to_string(tensor::available_threads()) + " threads";
    o.memory_limit = static_cast<double>(os::memory_limit());
  } else {
    o.memory_limit = static_cast<double>(tensor::device_memory(decoder.device()).total);
  }
  if (o.completions_per_row > 0 && config.draws_here) o.generation = config.generation.line;
  estimate_memory(o, config, decoder, copied);
}

// Times of a step, by passes over rows of this run's lengths and a few drawn tokens. Nothing is trained.
inline void measure(Overview& o, const EstimateConfig& config, model::Decoder& decoder) {
  if (o.ranks > 1 || !config.measurable || o.rows == 0) return;
  const c10::AutoGradMode no_gradient(false);
  const std::vector<ShownRow> shown = o.samples(4);
  if (shown.empty() || shown.front().ids.size() < 2) return;
  constexpr std::int64_t most_tokens = 512;
  const std::vector<data::TokenId>& ids = shown.front().ids;
  const auto row = [&](std::int64_t length) {
    std::vector<data::TokenId> out;
    while (detail::as_count(out.size()) < length) out.push_back(ids[out.size() % ids.size()]);
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
  const double passes = 3.0 + (config.checkpointing ? 1.0 : 0.0) + (config.compares ? 1.0 : 0.0);
  o.training_seconds = tokens * a_token * passes;
  if (o.completions_per_row == 0 || !config.draws_here) return;
  constexpr std::int64_t drawn = 8;
  const std::int64_t all = o.rows_per_step * o.completions_per_row;
  const GenerationMemory& memory = config.generation;
  const std::int64_t slots =
      std::min<std::int64_t>(memory.max_slots > 0 ? memory.max_slots : inference::SchedulerConfig{}.max_slots, all);
  inference::LocalEngine engine(
      decoder.config(), decoder.weights(),
      {.max_slots = slots, .cache_bytes = memory.cache_bytes, .merge_adapter = memory.merge_adapter});
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

}  // namespace rlalgo::assembly
