// Log-probs of given tokens, by the forward pass that training uses.
//
//   rlalgo score --model DIR [--lora-model-dir DIR] [--temperature 1] [--batch 16]
//
// In:  {"ids": […]}: every token after the first; or {"prompt" | "messages" | "prompt_ids": …, "completion" |
//      "completion_ids": …}: the tokens of the completion, which is tokenized on its own, without special tokens
// Out: {"log_probs": […]} nats, with "ids" of the scored tokens
#include <c10/core/GradMode.h>

#include <rlalgo/model/tree_builder.hpp>

#include "json_lines.hpp"

namespace rlalgo::cli {

namespace {

struct Scored {
  std::vector<data::TokenId> prompt, completion;
};

Scored read(const JsonLines::Line& line, const config::LanguageModel& model) {
  Scored out;
  const Json& object = line.object;
  if (object.contains("ids")) {
    out.completion = prompt_ids(line, model, "prompt", true, true);
    if (out.completion.empty()) wrong_line(line, "ids is empty", "one id or more");
    out.prompt = {out.completion.front()};
    out.completion.erase(out.completion.begin());
    return out;
  }
  const auto renamed = [&](const char* key) {
    JsonLines::Line ids{line.number, {{"ids", object[key]}}};
    return prompt_ids(ids, model, "prompt", true, true);
  };
  out.prompt = object.contains("prompt_ids") ? renamed("prompt_ids") : prompt_ids(line, model, "prompt", true, true);
  if (object.contains("completion_ids")) {
    out.completion = renamed("completion_ids");
  } else {
    if (!object.contains("completion") || !object["completion"].is_string())
      wrong_line(line, "a line has no completion", "completion (a text) or completion_ids");
    out.completion = model.tokenizer.encode(object["completion"].get<std::string>(), false);
  }
  if (out.prompt.empty()) wrong_line(line, "the prompt has no token", "at least one, from which the next is predicted");
  return out;
}

}  // namespace

int score(const Arguments& arguments) {
  const Options options("score", arguments,
                        {{"model", ""}, {"lora-model-dir", ""}, {"temperature", "1"}, {"batch", "16"}});
  const config::LanguageModel model = load_model(options, "score");
  const c10::AutoGradMode no_gradient(false);
  const double temperature = options.number("temperature");
  const auto batch_size = static_cast<std::size_t>(std::max(1.0, options.number("batch")));
  JsonLines lines;
  for (auto batch = lines.next(batch_size); !batch.empty(); batch = lines.next(batch_size)) {
    std::vector<Scored> rows;
    std::vector<model::Sequence> views;
    for (const JsonLines::Line& line : batch) rows.push_back(read(line, model));
    for (const Scored& row : rows) views.push_back({row.prompt, row.completion});
    const model::Scores scores = model.decoder->score(model::build_tree(views), {.temperature = temperature});
    const tensor::Tensor log_probs = scores.log_prob.to(at::kCPU, at::kFloat).contiguous();
    const float* next = log_probs.const_data_ptr<float>();
    for (const Scored& row : rows) {
      Json values = Json::array();
      for (std::size_t t = 0; t < row.completion.size(); ++t) values.push_back(*next++);
      answer({{"log_probs", std::move(values)}, {"ids", row.completion}});
    }
  }
  return 0;
}

}  // namespace rlalgo::cli
