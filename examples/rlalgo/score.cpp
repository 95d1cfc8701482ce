// Log-probs of given tokens, by the forward pass that training uses, or by the engine that generates.
#include <algorithm>

#include <c10/core/GradMode.h>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include "json_lines.hpp"

namespace rlalgo::cli {

namespace {

struct Scored {
  std::vector<data::TokenId> prompt, completion;
};

Scored read(const JsonLines::Line& line, const LineModel& model) {
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
    out.completion = model.needed_tokenizer().encode(object["completion"].get<std::string>(), false);
  }
  if (out.prompt.empty()) wrong_line(line, "the prompt has no token", "at least one, from which the next is predicted");
  return out;
}

std::vector<float> by_training_path(const std::vector<Scored>& rows, const LineModel& model, double temperature) {
  std::vector<model::Sequence> views;
  for (const Scored& row : rows) views.push_back({row.prompt, row.completion});
  const model::Scores scores = model.decoder->score(model::build_tree(views), {.temperature = temperature});
  const tensor::Tensor log_probs = scores.log_prob.to(at::kCPU, at::kFloat).contiguous();
  return {log_probs.const_data_ptr<float>(), log_probs.const_data_ptr<float>() + log_probs.numel()};
}

std::vector<float> by_engine(const std::vector<Scored>& rows, rlalgo::inference::LocalEngine& engine,
                             double temperature) {
  std::vector<rlalgo::inference::Request> requests;
  for (const Scored& row : rows)
    if (!row.completion.empty()) requests.push_back({.prompt = row.prompt, .given = row.completion});
  std::vector<float> out;
  for (const auto& group : engine.generate(requests, {.temperature = temperature}, {}))
    out.insert(out.end(), group[0].log_probs.begin(), group[0].log_probs.end());
  return out;
}

struct ScoreOptions : ModelOptions {
  double temperature = 1;
  double batch = 16;
  bool engine = false;
};

int score_lines(const ScoreOptions& options) {
  const LineModel model = load_model(options, "score");
  const c10::AutoGradMode no_gradient(false);
  if (!(options.temperature > 0.0))
    core::raise_usage("cli", 16,
                      {.what = "--temperature must be above 0", .found = std::to_string(options.temperature)});
  const auto batch_size = static_cast<std::size_t>(std::clamp(options.batch, 1.0, 4096.0));
  std::optional<rlalgo::inference::LocalEngine> engine;
  if (options.engine)
    engine.emplace(model.decoder->config(), model.decoder->weights(),
                   rlalgo::inference::EngineConfig{.max_slots = static_cast<std::int64_t>(batch_size)});
  JsonLines lines;
  for (auto batch = lines.next(batch_size); !batch.empty(); batch = lines.next(batch_size)) {
    std::vector<Scored> rows;
    for (const JsonLines::Line& line : batch) rows.push_back(read(line, model));
    const std::vector<float> log_probs =
        engine ? by_engine(rows, *engine, options.temperature) : by_training_path(rows, model, options.temperature);
    const float* next = log_probs.data();
    for (const Scored& row : rows) {
      Json values = Json::array();
      for (std::size_t t = 0; t < row.completion.size(); ++t) values.push_back(*next++);
      answer({{"log_probs", std::move(values)}, {"ids", row.completion}});
    }
  }
  return 0;
}

}  // namespace

Run score(CLI::App& app) {
  const auto options = std::make_shared<ScoreOptions>();
  add_model_options(app, *options);
  app.add_option("--temperature", options->temperature, "logits are divided by it; above 0")->capture_default_str();
  app.add_option("--batch", options->batch, "lines in one forward pass, at most")->capture_default_str();
  app.add_flag("--engine", options->engine,
               "by the engine that generates, token after token from its cache of keys and values; both agree but for "
               "rounding");
  app.footer(R"(
reads JSON lines:  {"ids": […]}: every token after the first; or {"prompt" | "messages" | "prompt_ids": …, "completion" |
                   "completion_ids": …}: the tokens of the completion, which is tokenized on its own, without special
                   tokens
writes:            {"log_probs": […]} in nats, with "ids" of the scored tokens)");
  return [options] { return score_lines(*options); };
}

}  // namespace rlalgo::cli
