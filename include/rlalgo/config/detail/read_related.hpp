// Keys whose meaning is a relation to other keys: batch_size, packing, keys of other recipes.
#pragma once

#include <string>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

// batch_size = micro_batch_size × gradient_accumulation_steps; it may stand for the second.
inline void read_batch_size(Reader& reader, RunConfig& config) {
  std::int64_t batch_size = 0;
  if (!reader.read("batch_size", batch_size)) return;
  const auto refuse = [&](int number, core::ErrorText text) {
    text.where = reader.section().find("batch_size")->place.text();
    reader.refuse(number, text);
    reader.findings().refusals.distrust("gradient_accumulation_steps");  // what it is, is not said
  };
  if (reader.given("gradient_accumulation_steps"))
    return refuse(8, {.what = "batch_size and gradient_accumulation_steps are both set",
                      .remedy = "remove batch_size: it is micro_batch_size × gradient_accumulation_steps"});
  if (!reader.given("micro_batch_size"))
    return refuse(8, {.what = "batch_size alone does not say how much fits into one pass",
                      .remedy = "set micro_batch_size as well"});
  if (batch_size < 1 || config.micro_batch_size < 1 || batch_size % config.micro_batch_size != 0)
    return refuse(11, {.what = "batch_size is not a multiple of micro_batch_size",
                       .found = std::to_string(batch_size) + " and " + std::to_string(config.micro_batch_size)});
  config.gradient_accumulation_steps = batch_size / config.micro_batch_size;
}

inline void warn_of_schedule(Reader& reader, const RunConfig& config) {
  const auto idle = [&](const char* key, const std::string& reason) {
    reader.findings().warnings.push_back(std::string(key) + " (" + reader.section().find(key)->place.text() +
                                         ") has no effect: " + reason);
  };
  const bool cosine = config.lr_scheduler == "cosine";
  const std::string other = "lr_scheduler is " + config.lr_scheduler;
  if (reader.given("cosine_min_lr_ratio") && !cosine && config.lr_scheduler != "rex")
    idle("cosine_min_lr_ratio", other);
  if (reader.given("cosine_min_lr_ratio") && cosine && config.lr_quadratic_warmup)
    idle("cosine_min_lr_ratio", "lr_quadratic_warmup goes with a plain cosine");
  if (config.cosine_constant_lr_ratio && (!cosine || !config.cosine_min_lr_ratio || config.lr_quadratic_warmup))
    idle("cosine_constant_lr_ratio", "it needs lr_scheduler: cosine, cosine_min_lr_ratio and a linear warm-up");
  if (config.lr_quadratic_warmup && !cosine) idle("lr_quadratic_warmup", other);
  if (cosine && config.schedule.cycles &&
      (config.lr_quadratic_warmup || config.cosine_min_lr_ratio.value_or(0.0) != 0.0))
    idle("lr_scheduler_kwargs", "num_cycles goes with a plain cosine and a linear warm-up");
  if (config.lr_scheduler == "reduce_lr_on_plateau")
    for (const char* key : {"warmup_steps", "warmup_ratio"})
      if (reader.given(key)) idle(key, "reduce_lr_on_plateau starts at learning_rate");
}

inline void read_related_keys(Reader& reader, RunConfig& config) {
  read_batch_size(reader, config);
  warn_of_schedule(reader, config);
  if (const Node* packing = reader.take("sample_packing"); packing != nullptr && is_on(*packing)) {
    const std::string remedy = is_strided(config)
                                   ? "remove sample_packing; ebft.pack_documents puts texts into chunks"
                                   : "remove sample_packing: sequences are laid out without padding anyway";
    if (reader.findings().allow_unsupported)
      reader.findings().warnings.push_back("sample_packing (" + packing->place.text() +
                                           ") does not go with rl and is left out (--allow-unsupported)");
    else
      reader.refuse(8,
                    {.what = "sample_packing does not go with rl", .where = packing->place.text(), .remedy = remedy});
  }
  for (const char* key : {"dpo_loss_type", "dpo_loss_weights"})
    if (const Node* node = is_preference(config) ? nullptr : reader.take(key); node != nullptr)
      reader.refuse(8, {.what = std::string(key) + " does not go with rl: " + config.rl,
                        .where = node->place.text(),
                        .remedy = "remove it, or set trl.loss_type"});
  if (config.chat_template_jinja && !config.chat_template) config.chat_template = "jinja";
}

}  // namespace rlalgo::config::detail
