// Completions of many prompts, batched. What a line gives does not depend on the lines beside it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <rlalgo/text/stream_decoder.hpp>

#include "engine_lines.hpp"

namespace rlalgo::cli {

namespace {

double number(const Line& line, const char* key, double otherwise) {
  if (!line.object.contains(key)) return otherwise;
  const Json& value = line.object[key];
  if (!value.is_number()) wrong_line(line, std::string(key) + " is not a number", "a number", value.dump());
  return value.get<double>();
}

std::int64_t whole_number(const Line& line, const char* key, std::int64_t otherwise, std::int64_t least,
                          std::int64_t most) {
  const double value = number(line, key, static_cast<double>(otherwise));
  if (!(value >= static_cast<double>(least)) || !(value <= static_cast<double>(most)) || value != std::floor(value))
    wrong_line(line, std::string(key) + " is out of range", std::to_string(least) + " to " + std::to_string(most),
               line.object[key].dump());
  return static_cast<std::int64_t>(value);
}

std::uint64_t seed_of(const Line& line) {
  if (!line.object.contains("seed")) return 0;
  const Json& value = line.object["seed"];
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  return static_cast<std::uint64_t>(whole_number(line, "seed", 0, 0, std::int64_t{1} << 53U));
}

// A text or a list of them.
std::vector<std::string> stops_of(const Line& line) {
  std::vector<std::string> out;
  if (!line.object.contains("stop") || line.object["stop"].is_null()) return out;
  const Json& given = line.object["stop"];
  for (const Json& one : given.is_array() ? given : Json::array({given})) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty())
      wrong_line(line, "stop is no text", "a text or a list of texts", given.dump());
    out.push_back(one.get<std::string>());
  }
  return out;
}

inference::RequestSpec read_request(const Line& line, const LineModel& model) {
  constexpr std::int64_t most = std::int64_t{1} << 30U;
  inference::RequestSpec out;
  require_known(line, {"prompt", "messages", "ids", "max_new_tokens", "max_tokens", "temperature", "top_p", "top_k",
                       "min_p", "repetition_penalty", "seed", "n", "stop", "add_generation_prompt",
                       "continue_final_message", "tools", "documents", "chat_template_kwargs"});
  const char* length = line.object.contains("max_tokens") ? "max_tokens" : "max_new_tokens";
  if (line.object.contains("max_tokens") && line.object.contains("max_new_tokens"))
    wrong_line(line, "a line has both max_tokens and max_new_tokens", "one of them");
  out.stop_strings = stops_of(line);
  if (!out.stop_strings.empty())
    out.text_stream = [tokenizer = model.needed_tokenizer()] {
      const auto stream = std::make_shared<text::StreamDecoder>(tokenizer);
      return inference::TextStream{[stream](data::TokenId id) { return stream->push(id); },
                                   [stream] { return stream->finish(); }};
    };
  out.prompt = prompt_ids(line, model, "prompt", true, true);
  out.count = whole_number(line, "n", 1, 1, 4096);
  out.key.seed = seed_of(line);
  out.sampling = {.temperature = number(line, "temperature", 1),
                  .top_p = number(line, "top_p", 1),
                  .top_k = whole_number(line, "top_k", 0, 0, most),
                  .min_p = number(line, "min_p", 0),
                  .repetition_penalty = number(line, "repetition_penalty", 1),
                  .max_new_tokens = whole_number(line, length, 256, 1, most),
                  .stop_ids = model.stop_ids};
  return out;
}

// The text before the first stop text in it.
std::string before_stops(std::string text, const std::vector<std::string>& stops) {
  std::size_t end = text.size();
  for (const std::string& stop : stops) end = std::min(end, text.find(stop));
  text.resize(end);
  return text;
}

struct GenerateOptions : ModelOptions {
  std::int64_t batch = 32;
  EngineOptions engine;
};

int generate_lines(const GenerateOptions& options) {
  const inference::EngineConfig engine = engine_of(options.engine);
  const LineModel model = load_model(options, "generate", true, engine.quantization);
  const EngineTask task = [&](const Line& line, Answers::Turn&) {
    inference::RequestSpec request = read_request(line, model);
    const std::vector<std::string> stops = request.stop_strings;
    return EngineWork{std::move(request),
                      [&model, stops, index = line.number - 1](Answers::Turn& turn, inference::RequestResult&& result) {
                        for (std::size_t k = 0; k < result.completions.size(); ++k) {
                          const data::Completion& c = result.completions[k].completion;
                          turn.add({{"ids", c.ids},
                                    {"text", model.tokenizer ? Json(before_stops(model.tokenizer->decode(c.ids), stops))
                                                             : Json(nullptr)},
                                    {"log_probs", c.log_probs},
                                    {"finish_reason", c.finish == data::Finish::length ? "length" : "stop"},
                                    {"index", index},
                                    {"sample", k}});
                        }
                      }};
  };
  return answer_by_engine(model, options.batch, task, engine);
}

}  // namespace

Run generate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  add_model_options(app, *options);
  add_dtype_option(app, options->dtype);
  add_device_option(app, options->device);
  add_engine_options(app, options->engine);
  add_whole_option(app, "--batch", options->batch, 1, 4096,
                   "completions under way at a time, of all lines together, at most");
  app.footer(R"(
reads JSON lines:  {"prompt" | "messages" | "ids": …, "max_new_tokens": 256, "temperature": 1, "top_p": 1, "top_k": 0,
                   "min_p": 0, "repetition_penalty": 1, "seed": 0, "n": 1, "stop": text or list}; temperature 0 is greedy,
                   "max_tokens" is "max_new_tokens", "text" ends before a stop text (its ids stay), a key that is not
                   read is an error
writes:            {"ids", "text", "log_probs", "finish_reason": "stop" or "length", "index": line, "sample": 0 … n − 1},
                   one line per completion, in the order of the input, as soon as its line's turn has come; "text" is null
                   where the directory has no tokenizer. A line that is wrong: {"error": text, "index": line}, exit status 1

Lines are worked on together, whatever their settings, and none changes what another one gives.)");
  return [options] { return generate_lines(*options); };
}

}  // namespace rlalgo::cli
