// Rows of preference data → token ids: what is the prompt, what is the answer, what is cut, what is dropped.
//
//   end_text (dpo, ipo, kto)   the end token's text is appended to an answer that does not end with it; prompt and
//                              prompt + answer are encoded with the tokenizer's special tokens; the prompt is the
//                              longest common prefix of all of them (chosen and rejected together)
//   end_id (orpo, simpo, cpo)  encoded without special tokens; begin-of-text is put before the prompt and the end id
//                              after each answer unless they are there; each answer has its own boundary
//   messages                   rendered by the chat template, with the row's tools and variables (template_columns.hpp);
//                              no end token is appended to them under end_text
//
// A prompt that is a text beside answers that are messages is the user's turn: before answers that begin with the
// assistant, or the one that the answers have in common.
//
// Length: first `excess` (drop, truncate, raise) on tokens without special tokens, of texts prompt and answer encoded
// apart, of messages the whole; then max_length on the whole: end_text keeps the first (or, keep_end, the last) max_length tokens of each sequence,
// end_id cuts each answer to max_length − its prompt. A row whose prompt fills max_length is dropped and counted.
//
// Source: TRL (DPO, KTO, ORPO, CPO trainers; boundary and cuts as 1.16), axolotl (excess_length_strategy).
// Errors: [rlalgo.data.10] a column is missing or has another type; [rlalgo.data.23] an empty prompt or answer;
// [rlalgo.data.24] a label that is not true or false; [rlalgo.data.25] a row longer than sequence_len where that is an
// error; [rlalgo.data.26] no row is left; [rlalgo.data.34] a text as prompt beside conversations that do not hold it;
// those of template_columns.hpp. What the chat template raises names the row.
// Departures: a begin-of-text token that template and tokenizer both print is kept once. An unpaired family fed with
// pairs takes chosen and rejected in turn (TRL: runs of 1000 rows of one label). orpo and cpo render the row's tools, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

// What of tokenizer and chat template is needed here (text/ is another room of this floor).
struct TextTools {
  std::function<std::vector<TokenId>(const std::string& text, bool special_tokens)> encode;
  std::function<std::string(std::span<const TokenId>)> decode;  // special tokens kept
  Render render;
  std::optional<TokenId> bos, eos;
  std::string eos_text;
};

enum class EndRule { text, id };
enum class Excess { drop, truncate, raise };

struct TokenizeConfig {
  PreferenceFamily family = PreferenceFamily::pairs;
  EndRule end = EndRule::text;
  std::optional<std::int64_t> max_length = 512;  // tokens of prompt + answer
  Excess excess = Excess::drop;
  bool filter = true;     // apply `excess` (skip_prepare_dataset: no)
  bool keep_end = false;  // truncation_mode: keep_end
  std::string tools_column = "tools";
};

// What became of the rows, for the log.
struct TokenizeCounts {
  std::int64_t rows = 0;          // examples read
  std::int64_t answers = 0;       // of them
  std::int64_t too_long = 0;      // dropped by `excess`
  std::int64_t truncated = 0;     // answers cut by `excess`
  std::int64_t prompt_fills = 0;  // dropped: the prompt leaves no room
  std::int64_t cut = 0;           // sequences cut to max_length
  std::int64_t identical = 0;     // pairs whose answers are the same: they teach nothing
  std::int64_t desirable = 0;     // of unpaired rows
  std::int64_t kept = 0;          // examples made

  TokenizeCounts& operator+=(const TokenizeCounts& other) {
    for (const auto member : {&TokenizeCounts::rows, &TokenizeCounts::answers, &TokenizeCounts::too_long,
                              &TokenizeCounts::truncated, &TokenizeCounts::prompt_fills, &TokenizeCounts::cut,
                              &TokenizeCounts::identical, &TokenizeCounts::desirable, &TokenizeCounts::kept})
      this->*member += other.*member;
    return *this;
  }
};

[[noreturn]] void raise_nothing_left(std::int64_t rows, const std::string& name);

namespace detail {

// A prompt or an answer: text, or messages.
struct Source {
  Json value;
  std::string text;  // of a text
  [[nodiscard]] bool messages() const { return value.is_array(); }
};

Source source_of(const Json& row, const std::string& field, const std::string& where);

std::size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

// The prompt as the common beginning of the answers, where a row has no prompt. A single space before the split belongs
// to the answers; of two answers of which one begins with the other, the last common element stays with the answers.
void extract_prompt(Json& row, const std::string& where);

// A prompt that is a text beside answers that are messages, as messages.
void place_text_prompt(Json& row, bool pair, const std::string& where);

class PreferenceTokenizer {
 public:
  PreferenceTokenizer(TokenizeConfig config, const TextTools& tools) : config_(config), tools_(tools) {}

  // Appends the answers of one row to `out` unless it is dropped.
  void add(Json row, std::int64_t number, const std::string& where, AnswerSet& out, TokenizeCounts& counts) const;

 private:
  struct Tokens {
    std::vector<std::vector<TokenId>> prompts, answers;  // one of each per answer
    std::vector<std::vector<TokenId>> rests = {};        // of unpaired answers: what was cut off their ends
  };

  static bool label_of(const Json& row, const std::string& where);

  void add_here(Json& row, std::int64_t number, const std::string& where, AnswerSet& out, TokenizeCounts& counts) const;

  // Tokens of a prompt and of one of its answers.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> lengths(const Source& prompt, const Source& answer,
                                                              const TemplateColumns& columns) const;

  // The rule of `excess`; cuts answers where that is asked for.
  bool fits(const Source& prompt, std::vector<Source>& answers, const TemplateColumns& columns,
            const std::string& where, TokenizeCounts& counts) const;

  [[nodiscard]] std::vector<TokenId> encode_once(const std::string& text, bool special_tokens) const;

  // Texts of the prompt and of prompt + answer.
  [[nodiscard]] std::pair<std::string, std::string> texts(const Source& prompt, const Source& answer,
                                                          const TemplateColumns& columns) const;

  [[nodiscard]] Tokens end_with_text(const Source& prompt, const std::vector<Source>& answers,
                                     const TemplateColumns& columns) const;

  [[nodiscard]] Tokens end_with_id(const Source& prompt, const std::vector<Source>& answers,
                                   const TemplateColumns& columns) const;

  // Cuts to max_length; false: the row is dropped.
  bool within_length(Tokens& tokens, const std::string& where, TokenizeCounts& counts) const;

  TokenizeConfig config_;
  const TextTools& tools_;
};

}  // namespace detail

// Tokenizes a table of transformed rows. `name` is the setting the rows come from, for errors.
[[nodiscard]] AnswerSet tokenize_preferences(const Table& table, const TokenizeConfig& config, const TextTools& tools,
                                             TokenizeCounts& counts, const std::string& name = "datasets");

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/preference_tokens_impl.hpp>
#endif
