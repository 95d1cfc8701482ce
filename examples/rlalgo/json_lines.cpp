#include "json_lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/checkpoint.hpp>

#include "log.hpp"
#include "own_kernels.hpp"

namespace rlalgo::cli {

std::optional<Line> LineReader::next(double seconds) {
  const os::Stopwatch watch;
  for (bool asked = false; true;) {
    while (std::optional<std::string> text = take()) {
      ++number_;
      if (text->find_first_not_of(" \t\r") != std::string::npos) return Line{number_, std::move(*text), {}};
    }
    if (ended_ || (asked && watch.seconds() >= seconds)) return std::nullopt;
    asked = fill(std::max(0.0, seconds - watch.seconds()));
    if (!asked && !ended_) return std::nullopt;
  }
}

std::optional<std::string> LineReader::take() {
  const std::size_t at = buffer_.find('\n', std::max(begin_, searched_));
  if (at == std::string::npos && !(ended_ && begin_ < buffer_.size())) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched_ = buffer_.size();
    return std::nullopt;
  }
  const std::size_t end = at == std::string::npos ? buffer_.size() : at;
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = std::min(end + 1, buffer_.size());
  searched_ = begin_;
  return line;
}

bool LineReader::fill(double seconds) {
  const auto break_off = [&](std::function<void()> raise) {
    failure_ = std::move(raise);
    ended_ = true;
    buffer_.clear();
    begin_ = searched_ = 0;
    return false;
  };
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int most = std::isinf(seconds) ? -1 : static_cast<int>(std::ceil(seconds * 1e3));
  if (const int ready = ::poll(&input, 1, most); ready == 0 || (ready < 0 && errno == EINTR)) return ready < 0;
  char chunk[1U << 16U];
  const ssize_t count = ::read(STDIN_FILENO, chunk, sizeof chunk);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count < 0)
    return break_off([reason = std::string(std::strerror(errno))] {
      core::raise("cli", 21, {.what = "standard input cannot be read", .found = reason});
    });
  ended_ = count == 0;
  buffer_.append(chunk, static_cast<std::size_t>(count));
  if (buffer_.size() - begin_ > longest_line && !has_line())
    return break_off([line = number_ + 1] {
      core::raise("cli", 19,
                  {.what = "a line of standard input is too long",
                   .found = "more than " + std::to_string(longest_line) + " bytes",
                   .where = "line " + std::to_string(line),
                   .remedy = "one JSON object a line"});
    });
  return count > 0;
}

void LineReader::require_complete() const {
  if (failure_) failure_();
}

void wrong_line(const Line& line, const std::string& what, const std::string& expected, const std::string& found) {
  core::raise("cli", 11, {.what = what, .found = found, .expected = expected, .where = line.where()});
}

void parse(Line& line) {
  auto [object, problem] = core::read_json<Json>(line.text);
  if (problem.beyond_limit) wrong_line(line, "a line holds " + problem.text, "less");
  line.object = std::move(object);
  if (!line.object.is_object()) wrong_line(line, "a line is not a JSON object", "{\"key\": value, …}");
  line.text = {};
}

void require_known(const Line& line, const std::vector<std::string>& known) {
  for (const auto& [key, value] : line.object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = core::nearest_name(key, known);
    std::string all;
    for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
    wrong_line(line, "a line has a key that is not read", nearest.empty() ? "one of " + all : nearest, key);
  }
}

void Answers::Turn::add(const Json& object) {
  text_ += object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

void Answers::Turn::end() {
  if (!done_) waiting_ += bytes();
  done_ = true;
}

void Answers::Turn::fail(const std::string& text) {
  text_.clear();
  add({{"error", text}, {"index", line_ - 1}});
  error_ = text;
  end();
}

Answers::Turn& Answers::open(const Line& line) {
  turns_.push_back(std::unique_ptr<Turn>(new Turn(line.number, waiting_)));
  ++lines_;
  return *turns_.back();
}

void Answers::attempt(const Line& line, Turn& turn, const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    const std::string text = error.what();
    turn.fail(text.find(line.where()) == std::string::npos ? text + " (" + line.where() + ")" : text);
  } catch (const Json::exception& error) {
    turn.fail(core::Error::render("cli", 11,
                                  {.what = "a line holds a value of the wrong type",
                                   .found = core::json_reason(error.what()),
                                   .where = line.where()}));
  }
}

bool Answers::print() {
  bool any = false;
  for (; !turns_.empty() && turns_.front()->done_; turns_.pop_front()) {
    const Turn& turn = *turns_.front();
    if (!turn.error_.empty() && ++failed_ <= errors_told) fail(turn.error_);
    std::cout << turn.text_;
    waiting_ -= turn.bytes();
    any = true;
  }
  return any;
}

void Answers::flush() { require_output(); }

std::optional<Line> Answers::next(LineReader& lines) {
  if (!lines.has_line()) flush();
  if (std::optional<Line> line = lines.next(0.0)) return line;
  flush();
  return lines.next(patience);
}

int Answers::finish(const LineReader& lines) {
  print();
  flush();
  lines.require_complete();
  if (failed_ == 0) return 0;
  core::raise("cli", 20,
              {.what = "not every line was answered",
               .found = std::to_string(failed_) + " of " + std::to_string(lines_) + " with an error",
               .remedy = "the answer of each says why, {\"error\": …}"});
}

int answer_each(const std::function<void(const Line&, Answers::Turn&)>& f) {
  LineReader lines;
  Answers answers;
  while (std::optional<Line> line = answers.next(lines)) {
    Answers::Turn& turn = answers.open(*line);
    answers.attempt(*line, turn, [&] {
      parse(*line);
      f(*line, turn);
    });
    turn.end();
    answers.print();
  }
  return answers.finish(lines);
}

CLI::Option* add_whole_option(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                              std::int64_t most, const std::string& what) {
  const auto take = [&value, name, least, most](const CLI::results_t& words) {
    const std::string& word = words.back();
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);  // 1e6 is a whole number, too
    const bool good = end != word.c_str() && *end == '\0' && number >= static_cast<double>(least) &&
                      number <= static_cast<double>(most) && number == std::floor(number);
    if (!good)
      throw CLI::ValidationError(
          name, word + ", expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    value = static_cast<std::int64_t>(number);
    return true;
  };
  return app.add_option(name, take, what)->type_name("INT")->default_str(std::to_string(value));
}

void require_trained(const config::RunConfig& run) {
  const std::filesystem::path directory = run.output_dir;
  if (model::is_adapter_directory(directory) || os::exists(directory / "config.json")) return;
  const std::vector<run::Checkpoint> saved = run::list_checkpoints(directory);
  core::raise_usage(
      "cli", 26,
      {.what = "the training of this configuration has left no model yet",
       .found = os::exists(directory) ? "no config.json or adapter_config.json in output_dir"
                                      : "there is no output_dir " + directory.string(),
       .where = run.file,
       .remedy = saved.empty() ? "run `rlalgo train " + run.file + "` first"
                               : "let it end, or name its newest checkpoint: " + saved.back().path.string()});
}

CLI::Option* add_model_option(CLI::App& app, std::string& model, const std::string& what) {
  return app.add_option("MODEL,--model", model, what)->type_name("DIR");
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  add_model_option(app, options.model, "a Hugging Face directory, or an id in the local cache");
  app.add_option("--lora-model-dir", options.lora_model_dir, "an adapter for it (PEFT)")->type_name("DIR");
}

void add_dtype_option(CLI::App& app, std::string& dtype) {
  app.add_option("--dtype", dtype,
                 "of the weights: auto (as a configuration says, else float32, on a GPU bfloat16), float32, bfloat16")
      ->capture_default_str();
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "auto (as a configuration says, else a GPU where there is one), cpu, cuda, cuda:N")
      ->capture_default_str();
}

std::vector<std::string> device_override(const std::string& device) {
  if (device == "auto") return {};
  return {"--device", device};
}

void choose_device(const std::string& device, const std::string& dtype, config::RunConfig& run) {
  const bool configured = !run.file.empty();
  if (device != "auto" || !configured) {
    std::string told;
    config::place_on(run, device, 1, "--device", told);
    if (!told.empty()) note(told);
  }
  use_tried_kernels(config::device_of(run));
  if (dtype == "auto") {
    if (!configured) run.bfloat16 = config::device_of(run).is_cuda();
    return;
  }
  if (dtype != "float32" && dtype != "bfloat16")
    core::raise_usage(
        "cli", 7,
        {.what = "an option has no such value", .found = "--dtype " + dtype, .expected = "auto, float32 or bfloat16"});
  run.bfloat16 = dtype == "bfloat16";
}

void add_engine_options(CLI::App& app, EngineOptions& options) {
  app.add_option("--quantization", options.quantization,
                 "of weights: none, int8 (groups of 32 with a scale each; on the CPU also of what they are multiplied "
                 "with), or "
                 "fp8 (a scale a row; on a GPU)")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype,
                 "of keys and values: auto, as the weights are; fp8 or fp8_e4m3, on a GPU: half of bfloat16's memory")
      ->capture_default_str();
  app.add_flag(
      "--generation-invariant", options.invariant,
      "on a GPU: the numbers of a completion do not depend on what is computed with it, as they never do on the CPU");
}

inference::EngineConfig engine_of(const EngineOptions& options) {
  return {.cache_element = inference::cache_element_named(options.kv_cache_dtype, "--kv-cache-dtype"),
          .quantization = inference::quantization_named(options.quantization, "--quantization"),
          .invariant = options.invariant};
}

model::WeightMemory engine_memory(const config::RunConfig& run, inference::Quantization quantization) {
  const bool copies = quantization != inference::Quantization::none || (run.bfloat16 && inference::packs_bfloat16());
  return copies ? model::WeightMemory::mapped : model::WeightMemory::resident;
}

LineModel load_model(const ModelOptions& options, const std::string& verb, bool weights,
                     std::optional<inference::Quantization> engine) {
  if (options.model.empty())
    core::raise_usage("cli", 12,
                      {.what = "`rlalgo " + verb + "` needs a model",
                       .expected = "rlalgo " + verb + " DIR: a Hugging Face directory, or an id in the local cache"});
  config::RunConfig run;
  run.base_model = options.model;
  choose_device(options.device, options.dtype, run);
  if (!options.lora_model_dir.empty()) run.lora_model_dir = options.lora_model_dir;
  LineModel out{.places = config::find_model(run)};
  const std::filesystem::path& directory = out.places.tokenizer;
  if (!weights || std::filesystem::exists(directory / "tokenizer.json"))
    out.tokenizer = text::Tokenizer::from_directory(directory);
  out.chat_template = text::ChatTemplate::from_directory(directory);
  if (weights) {
    out.decoder = assembly::load_decoder(config::language_model_of(run), out.places,
                                         engine ? std::optional(engine_memory(run, *engine)) : std::nullopt);
    out.stop_ids = assembly::stop_ids(out.places.base, out.tokenizer ? &*out.tokenizer : nullptr);
  }
  return out;
}

const text::Tokenizer& LineModel::needed_tokenizer() const {
  if (tokenizer) return *tokenizer;
  text::Tokenizer::raise_missing(places.tokenizer);
}

namespace {

std::vector<data::TokenId> given_ids(const Line& line, const Json& list, std::int64_t vocabulary) {
  std::vector<data::TokenId> ids;
  if (!list.is_array()) wrong_line(line, "ids is no list", "a list of token ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocabulary)
      wrong_line(line, "ids holds something that is no token id: " + id.dump(),
                 "0 to " + std::to_string(vocabulary - 1));
    ids.push_back(id.get<data::TokenId>());
  }
  return ids;
}

}  // namespace

std::vector<data::TokenId> prompt_ids(const Line& line, const LineModel& model, const std::string& text_key,
                                      bool generation_prompt, bool special_tokens,
                                      std::optional<std::string>* rendered) {
  const Json& object = line.object;
  const int ways = static_cast<int>(object.contains("ids")) + static_cast<int>(object.contains("messages")) +
                   static_cast<int>(object.contains(text_key));
  if (ways != 1) wrong_line(line, "a line needs one of ids, messages and " + text_key, "exactly one");
  for (const char* key :
       {"add_generation_prompt", "continue_final_message", "tools", "documents", "chat_template_kwargs"})
    if (object.contains(key) && !object.contains("messages"))
      wrong_line(line, std::string(key) + " says something of messages", "messages", "a line without them");
  if (object.contains("ids"))
    return given_ids(line, object["ids"],
                     model.decoder ? model.decoder->config().vocab_size
                                   : static_cast<std::int64_t>(model.needed_tokenizer().vocab_size()));
  if (object.contains(text_key)) {
    if (!object[text_key].is_string()) wrong_line(line, text_key + " is not a text", "a string");
    const std::string text = object[text_key].get<std::string>();
    if (rendered != nullptr) *rendered = text;
    return model.needed_tokenizer().encode(text, special_tokens);
  }
  if (!model.chat_template)
    core::raise("cli", 13,
                {.what = "messages need a chat template, and the model has none",
                 .where = line.where(),
                 .remedy = "put chat_template.jinja into the model's directory"});
  text::ChatOptions chat{.add_generation_prompt = object.value("add_generation_prompt", generation_prompt),
                         .continue_final_message = object.value("continue_final_message", false)};
  if (object.contains("tools")) chat.tools = object["tools"];
  if (object.contains("documents")) chat.documents = object["documents"];
  if (object.contains("chat_template_kwargs") && !object["chat_template_kwargs"].is_null()) {
    if (!object["chat_template_kwargs"].is_object())
      wrong_line(line, "chat_template_kwargs is no object", "{\"name\": value}", object["chat_template_kwargs"].dump());
    chat.kwargs = object["chat_template_kwargs"];
  }
  const std::string text = model.chat_template->render(object["messages"], chat);
  if (rendered != nullptr) *rendered = text;
  return model.needed_tokenizer().encode(text, false);
}

}  // namespace rlalgo::cli
