// trl.rollout_func: a user's function makes the completions (remote/rollout_function.hpp); what it is told of the model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/remote/rollout_function.hpp>

namespace rlalgo::config {

// Null: there is none. Modules are looked for in `search_paths`.
[[nodiscard]] inline std::shared_ptr<remote::RolloutFunction> rollout_function(
    const RunConfig& c, std::vector<std::filesystem::path> search_paths) {
  if (!c.trl.rollout_func) return nullptr;
  return std::make_shared<remote::RolloutFunction>(
      *c.trl.rollout_func,
      remote::PythonConfig{.search_paths = std::move(search_paths), .call_seconds = c.trl.environment_timeout});
}

// `model` must outlive it, and have its decoder.
[[nodiscard]] inline remote::RolloutTexts rollout_texts(const RunConfig& c, const LanguageModel& model) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const auto id = [](std::optional<data::TokenId> value) { return value ? data::Json(*value) : data::Json(); };
  const auto token = [](const std::string& text) { return text.empty() ? data::Json() : data::Json(text); };
  remote::RolloutTexts out;
  out.prompt = [&model, kwargs = c.trl.chat_template_kwargs](const data::Json& prompt) {
    return model.encode(prompt, kwargs);
  };
  out.encode = [&tokenizer](const std::string& text, bool special) { return tokenizer.encode(text, special); };
  out.decode = [&tokenizer](std::span<const data::TokenId> ids, bool skip) { return tokenizer.decode(ids, skip); };
  out.render = [&model, own = c.trl.chat_template_kwargs](const data::Json& messages, bool generation_prompt,
                                                          const data::Json& tools, const data::Json& variables) {
    data::Json kwargs = own.is_object() ? own : data::Json::object();
    kwargs.update(variables);
    return model.render(messages, generation_prompt, kwargs, tools);
  };
  out.max_positions = model.max_positions;
  out.vocab_size = model.decoder->config().vocab_size;
  out.model = {{"tokenizer", std::filesystem::absolute(model.directory).string()},
               {"base_model", model.base_model},
               {"eos_id", id(tokenizer.eos_id())},
               {"eos_token", token(tokenizer.eos_token())},
               {"pad_id", id(tokenizer.pad_id())},
               {"pad_token", token(tokenizer.pad_token())},
               {"bos_id", id(tokenizer.bos_id())},
               {"bos_token", token(tokenizer.bos_token())}};
  out.rank = world_of(c)->rank();
  out.ranks = world_of(c)->size();
  return out;
}

}  // namespace rlalgo::config
