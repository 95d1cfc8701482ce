// Completions that a user's function makes of what is drawn for it (remote/rollout_function.hpp), and what it knows of the model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <rlalgo/assembly/form.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/remote/rollout_function.hpp>

namespace rlalgo::assembly {

struct RolledOut {
  static constexpr bool exclusive = true, asks_server = false;
  std::shared_ptr<remote::RolloutFunction> function = {};
  remote::RolloutTexts texts = {};  // rollout_texts() makes them

  template <class G>
  [[nodiscard]] std::shared_ptr<remote::RolloutFunction> around(std::shared_ptr<G> drawer,
                                                                const std::string& /*address*/) const {
    struct Held {
      std::shared_ptr<G> drawer;
      inference::AnyGenerator erased;
      std::shared_ptr<remote::RolloutFunction> function;
    };
    G& under = *drawer;
    const auto held = std::make_shared<Held>(Held{std::move(drawer), inference::AnyGenerator(under), function});
    function->draw_from(held->erased, texts);
    return {held, function.get()};
  }
};

static_assert(Form<RolledOut>);

// `kwargs`: variables of the run's chat template. `model` must outlive it, and have its decoder.
[[nodiscard]] inline remote::RolloutTexts rollout_texts(const LanguageModel& model, const data::Json& kwargs,
                                                        const distributed::World& world) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const auto id = [](std::optional<data::TokenId> value) { return value ? data::Json(*value) : data::Json(); };
  const auto token = [](const std::string& text) { return text.empty() ? data::Json() : data::Json(text); };
  remote::RolloutTexts out;
  out.prompt = [&model, kwargs](const data::Json& prompt) { return model.encode(prompt, kwargs); };
  out.encode = [&tokenizer](const std::string& text, bool special) { return tokenizer.encode(text, special); };
  out.decode = [&tokenizer](std::span<const data::TokenId> ids, bool skip) { return tokenizer.decode(ids, skip); };
  out.render = [&model, own = kwargs](const data::Json& messages, bool generation_prompt, const data::Json& tools,
                                      const data::Json& variables) {
    data::Json all = own.is_object() ? own : data::Json::object();
    all.update(variables);
    return model.render(messages, generation_prompt, all, tools);
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
  out.rank = world.rank();
  out.ranks = world.size();
  return out;
}

}  // namespace rlalgo::assembly
