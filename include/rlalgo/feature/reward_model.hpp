// A sequence classifier as a reward function: the score that it gives to prompt and completion together.
//
//   R = first logit of the classifier on the text's tokens, at the last one that is not its padding token
//
// The text is prompt + completion, or for conversations all messages through the classifier's own chat template; it is
// tokenized by the classifier's own tokenizer, without adding special tokens. A text without tokens is not scored.
// Source: trl.GRPOTrainer with a model among reward_funcs. Padding: pad_token, else eos_token, of its tokenizer; a text
// that ends in it is scored at the token before, as transformers does.
// Errors (usage): [rlalgo.reward.8] several labels; [rlalgo.reward.9] conversations, but no chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/sequence_classifier.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::feature {

class RewardModel final : public reward::RewardFunction {
 public:
  // `name` in metrics: empty = the directory's. `template_kwargs` are variables of the chat template. It scores on `device`.
  explicit RewardModel(const std::filesystem::path& directory, std::string name = {},
                       reward::Json template_kwargs = nullptr, at::Device device = at::Device(at::kCPU))
      : directory_(directory),
        name_(name.empty() ? name_of(directory) : std::move(name)),
        tokenizer_(text::Tokenizer::from_directory(directory)),
        chat_template_(text::ChatTemplate::from_directory(directory)),
        template_kwargs_(std::move(template_kwargs)),
        classifier_(model::load_sequence_classifier(directory, at::ScalarType::Float, device)) {
    if (classifier_->labels() != 1)
      core::raise_usage("reward", 8,
                        {.what = "a reward model must have one label",
                         .found = std::to_string(classifier_->labels()) + " labels",
                         .where = directory.string()});
  }
  [[nodiscard]] std::string name() const override { return name_; }

  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<std::vector<std::int32_t>> rows;
    std::vector<std::size_t> scored;
    for (std::size_t i = 0; i < call.size(); ++i) {
      std::vector<std::int32_t> ids = tokenizer_.encode(text_of(call, i), false);
      if (ids.empty()) continue;
      if (const auto pad = tokenizer_.pad_id()) {
        std::size_t last = ids.size();
        while (last > 1 && ids[last - 1] == *pad) --last;
        ids.resize(last);
      }
      rows.push_back(std::move(ids));
      scored.push_back(i);
    }
    std::vector<double> values(call.size(), std::numeric_limits<double>::quiet_NaN());
    const std::vector<float> logits = classifier_->first_logits(rows);
    for (std::size_t k = 0; k < scored.size(); ++k) values[scored[k]] = static_cast<double>(logits[k]);
    return values;
  }

  // The text that is scored.
  [[nodiscard]] std::string text_of(const reward::RewardCall& call, std::size_t i) const {
    const reward::Json &prompt = *call.prompts[i], &completion = call.completions[i];
    if (!prompt.is_array()) return prompt.get<std::string>() + call.texts[i];
    if (!chat_template_)
      core::raise_usage("reward", 9,
                        {.what = "the prompts are conversations, but the reward model has no chat template",
                         .where = directory_.string(),
                         .remedy = "add chat_template.jinja to it, or use text prompts"});
    reward::Json messages = prompt;
    for (const reward::Json& message : completion) messages.push_back(message);
    text::ChatOptions options{.add_generation_prompt = false};
    if (template_kwargs_.is_object()) options.kwargs = template_kwargs_;
    return chat_template_->render(messages, options);
  }

 private:
  static std::string name_of(const std::filesystem::path& directory) {
    const std::filesystem::path plain = directory.lexically_normal();
    return (plain.has_filename() ? plain : plain.parent_path()).filename().string();
  }

  std::filesystem::path directory_;
  std::string name_;
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> chat_template_;
  reward::Json template_kwargs_;
  std::unique_ptr<model::SequenceClassifier> classifier_;
};

}  // namespace rlalgo::feature
