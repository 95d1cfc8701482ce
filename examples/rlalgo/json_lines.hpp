// JSON lines from standard input to standard output, what `tokenize`, `score` and `generate` share: lines are taken as
// they come and answered in the order of the input.
//
// Work is gathered over as many lines as are there: a file fills every batch. An interactive writer, who waits for an
// answer before the next line, is not kept waiting: after the first line of idle work others are waited for at most
// `gather_seconds`. Lines that are being worked on, and answers that wait for an earlier one, are bounded, so that an
// endless input needs no more memory than a long one.
//
// A line that cannot be answered has {"error": text} for an answer, in its turn, and costs no other line its own; the
// first few such texts are also told on standard error, and the exit status is 1.
//
// Errors: [rlalgo.cli.11] a line that is not what the verb reads; [.17] an answer cannot be written; [.19] a line longer
// than `longest_line`; [.20] lines that were not answered; [.21] standard input cannot be read; [.26] require_trained().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/quantization.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

using data::Json;

inline constexpr double gather_seconds = 0.01;           // idle work waits so long for lines beside its first
inline constexpr std::size_t longest_line = 64U << 20U;  // bytes
inline constexpr std::size_t most_waiting = 64U << 20U;  // bytes of answers that wait for an earlier one
inline constexpr double patience = std::numeric_limits<double>::infinity();  // for the next line, when there is no work

struct Line {
  std::size_t number = 0;  // from 1, blank lines counted
  std::string text;
  Json object;  // once parse() has read it
  [[nodiscard]] std::string where() const { return "standard input, line " + std::to_string(number); }
};

// The lines of standard input that are not blank. Nothing is waited for unless next() is told to.
class LineReader {
 public:
  // The next line, waited for up to `seconds`; none in that time, or at the end.
  [[nodiscard]] std::optional<Line> next(double seconds);

  // Whether a line can be had without asking the system.
  [[nodiscard]] bool has_line() const noexcept { return buffer_.find('\n', searched_) != std::string::npos; }
  [[nodiscard]] bool ended() const noexcept { return ended_ && begin_ == buffer_.size(); }
  // Raises where the end was none: cli.19, cli.21.
  void require_complete() const;

 private:
  [[nodiscard]] std::optional<std::string> take();
  // Reads what is there, after waiting for it; false when there will be nothing in that time.
  bool fill(double seconds);

  std::string buffer_;
  std::size_t begin_ = 0;     // of the first line that was not taken
  std::size_t searched_ = 0;  // no line ends between begin_ and here
  std::size_t number_ = 0;
  bool ended_ = false;
  std::function<void()> failure_;  // raises what the end was
};

// Raises cli.11 for a key that is none of `known`, with the nearest of them.
void require_known(const Line& line, const std::vector<std::string>& known);

[[noreturn]] void wrong_line(const Line& line, const std::string& what, const std::string& expected,
                             const std::string& found = "");

// Answers in the order of the lines, whatever the order in which they are known.
class Answers {
 public:
  // What is printed for one line, once it is known.
  class Turn {
   public:
    void add(const Json& object);
    void end();
    // Instead of whatever there was.
    void fail(const std::string& text);

   private:
    friend class Answers;
    Turn(std::size_t line, std::size_t& waiting) : line_(line), waiting_(waiting) {}
    [[nodiscard]] std::size_t bytes() const { return sizeof(Turn) + text_.size() + error_.size(); }
    std::size_t line_;
    std::size_t& waiting_;
    std::string text_, error_;
    bool done_ = false;
  };

  // The place of a line's answer, valid until it is printed: not before end() or fail().
  [[nodiscard]] Turn& open(const Line& line);

  // Calls f, which raises where the line is wrong.
  void attempt(const Line& line, Turn& turn, const std::function<void()>& f);

  // Writes the answers whose turn it is; true when there were any. They are on their way after flush() only.
  bool print();
  void flush();

  // The next line of `lines`. Before it is waited for, what was printed is on its way.
  [[nodiscard]] std::optional<Line> next(LineReader& lines);

  // Bytes of answers that are known and wait for an earlier one, or to be printed.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

  // Prints the rest, at the end of `lines`; the exit status of the verb. Errors: cli.17, cli.19 to cli.21.
  int finish(const LineReader& lines);

 private:
  static constexpr std::size_t errors_told = 10;
  std::deque<std::unique_ptr<Turn>> turns_;  // of lines that are not printed yet, oldest first
  std::size_t lines_ = 0, failed_ = 0, waiting_ = 0;
};

// Reads the object of a line, or raises cli.11.
void parse(Line& line);

// Answers line after line: f(line, turn) adds to the turn or raises.
int answer_each(const std::function<void(const Line&, Answers::Turn&)>& f);

struct ModelOptions {
  std::string model, lora_model_dir, dtype = "auto", device = "auto";
};
// An option that takes a whole number from `least` to `most`; another value is an error of CLI11 (cli.7).
CLI::Option* add_whole_option(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                              std::int64_t most, const std::string& what);
// Raises cli.26 where the training of a configuration has left no model in its output_dir yet.
void require_trained(const config::RunConfig& run);
// A model's place, as an argument or as --model.
CLI::Option* add_model_option(CLI::App& app, std::string& model, const std::string& what);

void add_model_options(CLI::App& app, ModelOptions& options);
void add_dtype_option(CLI::App& app, std::string& dtype);
void add_device_option(CLI::App& app, std::string& device);
// What `--device` says in the place of the file's `device`, so that the file's is not looked for first.
std::vector<std::string> device_override(const std::string& device);
// What the options say of the place and the dtype of the weights; auto leaves them to the configuration, and without one it
// is a GPU where there is one, in bfloat16. Raises cli.7 where there is no such dtype, and what tensor/device.hpp raises.
void choose_device(const std::string& device, const std::string& dtype, config::RunConfig& run);
// In what numbers an engine computes and keeps.
struct EngineOptions {
  std::string quantization = "none", kv_cache_dtype = "auto";
  bool invariant = false;
};
void add_engine_options(CLI::App& app, EngineOptions& options);
// What these options say; raises where one has no such value.
inference::EngineConfig engine_of(const EngineOptions& options);
// Of a model that an engine alone reads, and not for long: what it makes copies of stays in its file.
model::WeightMemory engine_memory(const config::RunConfig& run, inference::Quantization quantization);

// What --model and --lora-model-dir name. Lines of ids need no tokenizer, so a directory may lack one.
struct LineModel {
  assembly::ModelPlaces places;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::shared_ptr<model::Decoder> decoder;  // none for `tokenize`
  std::vector<data::TokenId> stop_ids;

  // The tokenizer; without one, the error that names its directory.
  [[nodiscard]] const text::Tokenizer& needed_tokenizer() const;
};
// `engine`: what an engine quantizes, where it alone reads the weights.
[[nodiscard]] LineModel load_model(const ModelOptions& options, const std::string& verb, bool weights = true,
                                   std::optional<inference::Quantization> engine = {});

// The token ids of what a line prompts with: "ids", "messages" (through the chat template, with
// "add_generation_prompt", default `generation_prompt`, "tools", "chat_template_kwargs"), or the text under `text_key`.
// `rendered` is what was tokenized, where it was text.
[[nodiscard]] std::vector<data::TokenId> prompt_ids(const Line& line, const LineModel& model,
                                                    const std::string& text_key, bool generation_prompt,
                                                    bool special_tokens,
                                                    std::optional<std::string>* rendered = nullptr);

}  // namespace rlalgo::cli
