// The texts whose features are matched (feature/text_matching.hpp), as a language model shows and makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/prompt_tokens.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::assembly {

// Carries conversations on: the other side's turns are the dataset's, the assistant's are generated, one call for all
// samples of a prompt and turn. Draws are those of the samples' places, at positions that no first answer reaches.
class CarriedConversation {
 public:
  // What is given must outlive it.
  CarriedConversation(const LanguageModel& model, inference::AnyGenerator& generator, data::Json kwargs,
                      inference::SamplingConfig sampling, std::uint64_t seed)
      : model_(&model),
        generator_(&generator),
        kwargs_(std::move(kwargs)),
        sampling_(std::move(sampling)),
        seed_(seed) {}

  std::vector<std::string> operator()(const data::Json& prompt, const data::Json& columns, const data::Json& turns,
                                      const std::string& truth, std::span<const std::string> answers,
                                      std::size_t first_row, std::int64_t step) const {
    const RowTemplate shown(columns, kwargs_);
    const auto render = [&](const data::Json& messages, bool prompt_after) {
      return model_->render(messages, prompt_after, shown.kwargs, shown.tools);
    };
    const data::Json opening =
        prompt.is_array() ? prompt : data::Json::array({data::Json{{"role", "user"}, {"content", prompt}}});
    const auto begun = [&](const std::string& answer) {
      data::Json out = opening;
      out.push_back({{"role", "assistant"}, {"content", answer}});
      return out;
    };
    data::Json dataset = begun(truth);
    for (const data::Json& turn : turns) dataset.push_back(turn);
    std::vector<data::Json> played;
    for (const std::string& answer : answers) played.push_back(begun(answer));
    std::uint32_t number = 0;
    for (const data::Json& turn : turns) {
      ++number;
      if (turn.at("role") != "assistant") {
        for (data::Json& messages : played) messages.push_back(turn);
        continue;
      }
      std::vector<inference::Request> requests;
      for (std::size_t j = 0; j < played.size(); ++j)
        requests.push_back({.prompt = model_->tokenizer.encode(render(played[j], true), false),
                            .count = 1,
                            .first_index = first_row + j,
                            .first_position = number << 24U});
      const auto replies = generator_->generate(requests, sampling_, {seed_, static_cast<std::uint64_t>(step)});
      for (std::size_t j = 0; j < played.size(); ++j)
        played[j].push_back({{"role", "assistant"}, {"content", model_->tokenizer.decode(replies.at(j).at(0).ids)}});
    }
    std::vector<std::string> out = {render(dataset, false)};
    for (const data::Json& messages : played) out.push_back(render(messages, false));
    return out;
  }

 private:
  const LanguageModel* model_;
  inference::AnyGenerator* generator_;
  data::Json kwargs_;
  inference::SamplingConfig sampling_;
  std::uint64_t seed_;
};

// `kwargs`: variables of the run's templates; `columns`: whose the rows' own are. `model` must outlive them.
[[nodiscard]] inline feature::Texts matching_texts(const LanguageModel& model, const data::Json& kwargs,
                                                   RowColumns columns = RowColumns::prompts) {
  return {
      .render =
          [&model, kwargs, played = columns != RowColumns::prompts](const data::Json& prompt, const data::Json& row) {
            if (prompt.is_string()) return prompt.get<std::string>();
            if (played) return model.render(prompt, true, kwargs);
            const RowTemplate shown(row, kwargs);
            return model.render(prompt, true, shown.kwargs, shown.tools);
          },
      .encode = [&model](std::string_view text) { return model.tokenizer.encode(text, false); }};
}

}  // namespace rlalgo::assembly
