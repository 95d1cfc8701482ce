// What a scheduler is asked for, and what it answers: a prompt and its completions, each with everything of its own.
//
// Two requests in one pass share nothing: sampling, weights, end conditions and sinks are the request's. Sinks are
// called on the scheduler's thread and must not call the scheduler.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::inference {

using RequestId = std::uint64_t;

struct TokenLogProb {
  data::TokenId id;
  float log_prob;  // nats
};

// Decodes one completion as it grows. push() gives the text that an id has made certain, finish() what is left.
struct TextStream {
  std::function<std::string(data::TokenId)> push;
  std::function<std::string()> finish;
};

// A token as it is drawn.
struct TokenEvent {
  RequestId request;
  std::int64_t completion;  // in [0, count)
  data::TokenId id;
  float log_prob;
  std::span<const TokenLogProb> top;     // RequestSpec::top_log_probs of them, the most likely first
  std::string_view text;                 // of requests with text: what can be shown now
  std::string_view stop_text;            // the stop string that ended it
  std::optional<data::Finish> finished;  // why it is the last one
};

struct CompletionResult {
  data::Completion completion;
  std::string text;                                 // of requests with text: up to the stop string
  std::string stop_text;                            // the stop string that ended it
  std::vector<std::vector<TokenLogProb>> top = {};  // [ids], where top_log_probs are asked for
};

struct RequestResult {
  std::vector<CompletionResult> completions;          // [count]
  std::vector<TokenLogProb> prompt_log_probs;         // [prompt − 1]: of the second token of the prompt and so on
  std::vector<std::int64_t> prompt_ranks;             // [prompt − 1]: 1 + the number of ids with a larger logit
  std::vector<std::vector<TokenLogProb>> prompt_top;  // [prompt − 1], where more than the prompt's own are asked for
  std::int64_t cached_tokens = 0;                     // of the prompt, taken from the prefix cache
};

// Which log-probs are reported: of the distribution that was drawn from, or of the model, log_softmax(l).
enum class LogProbKind { drawn_from, model };

// Edits a private copy of the logits [V] before everything else: biases, grammars. `completion`: the ids so far. Called
// on any thread of the engine, for different completions at a time. Logits must stay finite; −1e30 forbids an id.
using LogitsEdit = std::function<void(std::span<float> logits, std::span<const data::TokenId> completion)>;

struct RequestSpec {
  std::vector<data::TokenId> prompt{};
  std::int64_t count = 1;     // completions of the one prompt, which is computed once
  SamplingConfig sampling{};  // max_new_tokens and stop_ids included
  // The draw of token t of completion j is a function of (key, first_index + j, first_position + t).
  DrawKey key{};
  std::uint64_t first_index = 0;
  std::uint32_t first_position = 0;
  std::vector<data::TokenId> given = {};  // not empty: these are the tokens, only their log-probs are computed

  std::int64_t min_new_tokens = 0;             // before it no end id can be drawn, and no stop string ends
  bool ignore_eos = false;                     // the model's end ids (SchedulerConfig::eos_ids) are ids like others
  std::vector<std::string> stop_strings = {};  // end a completion whose text contains one; its ids stay
  bool text = false;                           // decode, also without stop strings
  std::function<TextStream()> text_stream = nullptr;  // decodes a completion; null = the scheduler's
  LogitsEdit edit_logits = nullptr;

  LogProbKind log_probs = LogProbKind::drawn_from;
  std::int64_t top_log_probs = 0;  // the most likely ids beside each drawn one; ids that cannot be drawn are left out
  // Log-probs of the prompt's tokens at the sampling's temperature, and that many of the most likely beside each. The
  // prompt is computed anew.
  std::optional<std::int64_t> prompt_log_probs = {};

  Forward::WeightsHandle weights = nullptr;  // a version, an adapter; null = those of the scheduler

  std::function<void(const TokenEvent&)> on_token = nullptr;
  std::function<void(RequestId, RequestResult&&)> on_end = nullptr;  // all completions have ended, or were cancelled
  // A pass that had a row of it failed: the request is forgotten, without on_end, and those without a row in that pass go on. Where one of
  // the pass has no such sink, step() throws what failed.
  std::function<void(RequestId, const std::exception_ptr&)> on_failed = nullptr;
};

}  // namespace rlalgo::inference
