// Completions of many prompts, batched. What a line gives does not depend on the lines beside it.
#include <algorithm>

#include <rlalgo/inference/local_engine.hpp>

#include "json_lines.hpp"

namespace rlalgo::cli {

namespace {

struct Prompt {
  rlalgo::inference::Request request;
  rlalgo::inference::SamplingConfig sampling;
  std::uint64_t seed = 0;
  std::size_t line = 0;
  [[nodiscard]] bool goes_with(const Prompt& other) const {
    const auto& a = sampling;
    const auto& b = other.sampling;
    return seed == other.seed && a.temperature == b.temperature && a.top_p == b.top_p && a.top_k == b.top_k &&
           a.min_p == b.min_p && a.repetition_penalty == b.repetition_penalty && a.max_new_tokens == b.max_new_tokens;
  }
};

Prompt read_prompt(const JsonLines::Line& line, const LineModel& model) {
  const auto number = [&](const char* key, double otherwise) {
    if (!line.object.contains(key)) return otherwise;
    if (!line.object[key].is_number()) wrong_line(line, std::string(key) + " is not a number", "a number");
    return line.object[key].get<double>();
  };
  Prompt out;
  out.line = line.number;
  out.request.prompt = prompt_ids(line, model, "prompt", true, true);
  out.request.count = static_cast<std::int64_t>(number("n", 1));
  if (out.request.count < 1 || out.request.count > 4096) wrong_line(line, "n is out of range", "1 to 4096");
  out.seed = static_cast<std::uint64_t>(number("seed", 0));
  out.sampling = {.temperature = number("temperature", 1),
                  .top_p = number("top_p", 1),
                  .top_k = static_cast<std::int64_t>(number("top_k", 0)),
                  .min_p = number("min_p", 0),
                  .repetition_penalty = number("repetition_penalty", 1),
                  .max_new_tokens = static_cast<std::int64_t>(number("max_new_tokens", 256)),
                  .stop_ids = model.stop_ids};
  return out;
}

struct GenerateOptions : ModelOptions {
  double batch = 32;
};

int generate_lines(const GenerateOptions& options) {
  const LineModel model = load_model(options, "generate");
  const auto batch_size = static_cast<std::int64_t>(std::clamp(options.batch, 1.0, 4096.0));
  rlalgo::inference::LocalEngine engine(model.decoder->config(), model.decoder->weights(), {.max_slots = batch_size});
  JsonLines lines;
  for (auto batch = lines.next(static_cast<std::size_t>(batch_size)); !batch.empty();
       batch = lines.next(static_cast<std::size_t>(batch_size))) {
    std::vector<Prompt> prompts;
    for (const JsonLines::Line& line : batch) prompts.push_back(read_prompt(line, model));
    for (std::size_t begin = 0, end = 0; begin < prompts.size(); begin = end) {
      std::vector<rlalgo::inference::Request> requests;
      for (end = begin; end < prompts.size() && prompts[end].goes_with(prompts[begin]); ++end)
        requests.push_back(prompts[end].request);
      const auto groups = engine.generate(std::span<const rlalgo::inference::Request>(requests),
                                          prompts[begin].sampling, {.seed = prompts[begin].seed});
      for (std::size_t r = 0; r < groups.size(); ++r)
        for (std::size_t k = 0; k < groups[r].size(); ++k) {
          const data::Completion& c = groups[r][k];
          answer({{"ids", c.ids},
                  {"text", model.tokenizer ? Json(model.tokenizer->decode(c.ids)) : Json(nullptr)},
                  {"log_probs", c.log_probs},
                  {"finish_reason", c.finish == data::Finish::length ? "length" : "stop"},
                  {"index", prompts[begin + r].line - 1},
                  {"sample", k}});
        }
    }
  }
  return 0;
}

}  // namespace

Run generate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  add_model_options(app, *options);
  app.add_option("--batch", options->batch, "completions under way at a time, at most")->capture_default_str();
  app.footer(R"(
reads JSON lines:  {"prompt" | "messages" | "ids": …, "max_new_tokens": 256, "temperature": 1, "top_p": 1, "top_k": 0,
                   "min_p": 0, "repetition_penalty": 1, "seed": 0, "n": 1}; temperature 0 is greedy
writes:            {"ids", "text", "log_probs", "finish_reason": "stop" or "length", "index": line, "sample": 0 … n − 1},
                   one line per completion, in the order of the input; "text" is null where the directory has no tokenizer)");
  return [options] { return generate_lines(*options); };
}

}  // namespace rlalgo::cli
