// Log-probs of given tokens, by the forward pass that training uses, or by the engine that generates.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <c10/core/GradMode.h>

#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/os/clock.hpp>

#include "engine_lines.hpp"

namespace rlalgo::cli {

namespace {

struct Scored {
  std::vector<data::TokenId> prompt, completion;
  [[nodiscard]] std::size_t tokens() const { return prompt.size() + completion.size(); }
};

Scored read(const Line& line, const LineModel& model) {
  Scored out;
  const Json& object = line.object;
  require_known(line,
                {"ids", "prompt", "messages", "prompt_ids", "completion", "completion_ids", "add_generation_prompt",
                 "continue_final_message", "tools", "documents", "chat_template_kwargs"});
  for (const auto& [one, other] : {std::pair("ids", "completion"), std::pair("ids", "completion_ids"),
                                   std::pair("ids", "prompt_ids"), std::pair("completion", "completion_ids"),
                                   std::pair("prompt", "prompt_ids"), std::pair("messages", "prompt_ids")})
    if (object.contains(one) && object.contains(other))
      wrong_line(line, std::string("a line has both ") + one + " and " + other, "one of them");
  if (object.contains("ids")) {
    out.completion = prompt_ids(line, model, "prompt", true, true);
    if (out.completion.empty()) wrong_line(line, "ids is empty", "one id or more");
    out.prompt = {out.completion.front()};
    out.completion.erase(out.completion.begin());
    return out;
  }
  const auto renamed = [&](const char* key) {
    return prompt_ids({line.number, {}, {{"ids", object[key]}}}, model, "prompt", true, true);
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

void answer(Answers::Turn& turn, std::span<const float> log_probs, const std::vector<data::TokenId>& ids) {
  Json values = Json::array();
  for (const float value : log_probs) values.push_back(value);
  turn.add({{"log_probs", std::move(values)}, {"ids", ids}});
  turn.end();
}

struct ScoreOptions : ModelOptions {
  double temperature = 1;
  std::int64_t batch = 16;
  std::int64_t batch_tokens = 2048;
  bool engine = false;
  [[nodiscard]] std::size_t most_lines() const { return static_cast<std::size_t>(batch); }
  [[nodiscard]] std::size_t most_tokens() const { return static_cast<std::size_t>(batch_tokens); }
};

// Packs lines into one forward pass, up to the limits; a longer line goes alone.
class ScorePasses {
 public:
  ScorePasses(const LineModel& model, const ScoreOptions& options) : model_(model), options_(options) {}

  int run() {
    while (true) {
      const std::vector<Row> pack = next();
      if (pack.empty() && lines_.ended()) return answers_.finish(lines_);
      score(pack);
      answers_.print();
    }
  }

 private:
  struct Row {
    Line line;
    Answers::Turn* turn;
    Scored tokens;
  };

  std::vector<Row> next() {
    std::vector<Row> pack;
    std::size_t tokens = 0;
    const auto add = [&](Row row) {
      tokens += row.tokens.tokens();
      pack.push_back(std::move(row));
    };
    std::optional<os::Stopwatch> gathering;
    if (held_) {
      add(*std::exchange(held_, std::nullopt));
      gathering.emplace();
    }
    while (pack.size() < options_.most_lines() && tokens < options_.most_tokens() &&
           answers_.waiting() < most_waiting) {
      std::optional<Line> line =
          pack.empty() ? answers_.next(lines_) : lines_.next(std::max(0.0, gather_seconds - gathering->seconds()));
      if (!line) break;
      if (!gathering) gathering.emplace();
      Row row{{line->number, {}, {}}, &answers_.open(*line), {}};
      bool good = false;
      answers_.attempt(*line, *row.turn, [&] {
        parse(*line);
        row.tokens = read(*line, model_);
        good = true;
      });
      if (!good && pack.empty()) break;  // its turn has come
      if (!good) continue;
      if (!pack.empty() && tokens + row.tokens.tokens() > options_.most_tokens()) {
        held_ = std::move(row);
        break;
      }
      add(std::move(row));
    }
    return pack;
  }

  // A line that fails the pass is found by passes of one line each.
  void score(std::span<const Row> pack) {
    if (pack.empty()) return;
    try {
      pass(pack);
    } catch (const core::Error&) {
      for (const Row& row : pack) answers_.attempt(row.line, *row.turn, [&] { pass({&row, 1}); });
    }
  }

  void pass(std::span<const Row> pack) {
    std::vector<model::Sequence> views;
    for (const Row& row : pack) views.push_back({row.tokens.prompt, row.tokens.completion});
    const model::Scores scores = model_.decoder->score(model::build_tree(views), {.temperature = options_.temperature});
    const tensor::Tensor log_probs = scores.log_prob.to(at::kCPU, at::kFloat).contiguous();
    const float* next = log_probs.const_data_ptr<float>();
    for (const Row& row : pack) {
      answer(*row.turn, {next, row.tokens.completion.size()}, row.tokens.completion);
      next += row.tokens.completion.size();
    }
  }

  const LineModel& model_;
  const ScoreOptions& options_;
  LineReader lines_;
  Answers answers_;
  std::optional<Row> held_;  // the first of the next pack
};

std::optional<EngineWork> score_by_engine(const Line& line, const LineModel& model, double temperature,
                                          Answers::Turn& turn) {
  Scored row = read(line, model);
  if (row.completion.empty()) {
    answer(turn, {}, row.completion);
    return std::nullopt;
  }
  EngineWork work;
  work.request.prompt = std::move(row.prompt);
  work.request.given = row.completion;
  work.request.sampling.temperature = temperature;
  work.answer = [ids = std::move(row.completion)](Answers::Turn& to, rlalgo::inference::RequestResult&& result) {
    answer(to, result.completions[0].completion.log_probs, ids);
  };
  return work;
}

int score_lines(const ScoreOptions& options) {
  if (!(options.temperature > 0.0))
    core::raise_usage("cli", 16,
                      {.what = "--temperature must be above 0", .found = std::to_string(options.temperature)});
  const LineModel model =
      load_model(options, "score", true, options.engine ? std::optional(inference::Quantization::none) : std::nullopt);
  const c10::AutoGradMode no_gradient(false);
  if (!options.engine) return ScorePasses(model, options).run();
  return answer_by_engine(model, options.batch, [&](const Line& line, Answers::Turn& turn) {
    return score_by_engine(line, model, options.temperature, turn);
  });
}

}  // namespace

Run score(CLI::App& app) {
  const auto options = std::make_shared<ScoreOptions>();
  add_model_options(app, *options);
  add_dtype_option(app, options->dtype);
  add_device_option(app, options->device);
  app.add_option("--temperature", options->temperature, "logits are divided by it; above 0")->capture_default_str();
  add_whole_option(app, "--batch", options->batch, 1, 4096, "lines in one forward pass, at most");
  add_whole_option(app, "--batch-tokens", options->batch_tokens, 1, 1'000'000'000,
                   "tokens in one forward pass, at most; a longer line goes alone. With --engine: no limit");
  app.add_flag("--engine", options->engine,
               "by the engine that generates, token after token from its cache of keys and values; both agree but for "
               "rounding");
  app.footer(R"(
reads JSON lines:  {"ids": […]}: every token after the first; or {"prompt" | "messages" | "prompt_ids": …, "completion" |
                   "completion_ids": …}: the tokens of the completion, which is tokenized on its own, without special
                   tokens
writes:            {"log_probs": […]} in nats, with "ids" of the scored tokens, in the order of the input. A line that is
                   wrong: {"error": text, "index": line}, exit status 1

A forward pass over several lines rounds otherwise than over one (--batch 1), in the last digits; --engine does not.)");
  return [options] { return score_lines(*options); };
}

}  // namespace rlalgo::cli
