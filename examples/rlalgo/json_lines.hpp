// JSON lines from standard input to standard output, answered as they come: what `tokenize`, `score` and `generate`
// share.
#pragma once

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/language_model.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

using data::Json;

// The lines of standard input, in batches of those that are there already; blank lines are skipped. Every object knows
// its line for error messages.
class JsonLines {
 public:
  struct Line {
    std::size_t number = 0;
    Json object;
    [[nodiscard]] std::string where() const { return "standard input, line " + std::to_string(number); }
  };

  // At least one line and at most `most`, without waiting for more than the first; empty at the end of the input.
  [[nodiscard]] std::vector<Line> next(std::size_t most);

 private:
  std::size_t number_ = 0;
};

[[noreturn]] void wrong_line(const JsonLines::Line& line, const std::string& what, const std::string& expected);

struct ModelOptions {
  std::string model, lora_model_dir;
};
void add_model_options(CLI::App& app, ModelOptions& options);

// What --model and --lora-model-dir name. Lines of ids need no tokenizer, so a directory may lack one.
struct LineModel {
  config::ModelPlaces places;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::shared_ptr<model::Decoder> decoder;  // none for `tokenize`
  std::vector<data::TokenId> stop_ids;

  // The tokenizer; without one, the error that names its directory.
  [[nodiscard]] const text::Tokenizer& needed_tokenizer() const;
};
[[nodiscard]] LineModel load_model(const ModelOptions& options, const std::string& verb, bool weights = true);

// The token ids of what a line prompts with: "ids", "messages" (through the chat template, with
// "add_generation_prompt", default `generation_prompt`, "tools", "chat_template_kwargs"), or the text under `text_key`.
// `rendered` is what was tokenized, where it was text.
[[nodiscard]] std::vector<data::TokenId> prompt_ids(const JsonLines::Line& line, const LineModel& model,
                                                    const std::string& text_key, bool generation_prompt,
                                                    bool special_tokens,
                                                    std::optional<std::string>* rendered = nullptr);

// Writes one line, or raises cli.17.
void answer(const Json& object);

}  // namespace rlalgo::cli
