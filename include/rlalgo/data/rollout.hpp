// The host-side data of online RL: a prompt, what a generator returns for it, and the episodes that are made of that, with what was
// measured about them. An episode is one sample and owns the rows that it is made of: who counts samples counts episodes, who touches
// tokens visits rows. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/shared_json.hpp>

namespace rlalgo::data {

using Json = nlohmann::ordered_json;  // key order matters to chat templates and to saved files
using TokenId = std::int32_t;

enum class Finish { stop, length, aborted };  // ended by an end token, by the length limit, or by the caller

// A dataset row that can be prompted: the tokens to feed the model, and everything the rewards may ask for.
struct TokenizedPrompt {
  std::int64_t row = 0;                  // index in the dataset
  std::vector<TokenId> ids{};            // rendered and tokenized, generation prompt included
  SharedJson prompt{};                   // the source: a string, or a list of {"role", "content"} messages
  Json columns{};                        // the other dataset columns, an object
  std::vector<TokenId> answer_ids = {};  // an answer that is known, for losses with a likelihood term; mostly none
  std::vector<std::uint8_t> answer_mask = {};  // [answer_ids], 0 = no likelihood term; empty = all have one
  bool has_prompt = true;    // false: the row says nothing, `prompt` is an empty message that an environment fills
  std::size_t dialogue = 0;  // of several turns: in which of the run's dialogues it goes on
};

// What happened in an episode that did not come of one prompt and one draw: an environment or tools answered the model, or a
// rollout function made it.
struct Interaction {
  Json messages{};  // after the prompt: the model's, the environment's and the tools'; a string: the completion is
                    // this text whatever the prompt is; null: there is only the text
  std::string last_text{};  // of the model's last message
  double reward = 0.0;      // the environment's
  std::int64_t turns = 0;   // messages of the model
  bool has_tools = false;
  std::int64_t tool_calls = 0;
  std::int64_t tool_failures = 0;  // calls answered with an error
  Json columns = nullptr;          // what rewards see beside the row's columns, an object; null = nothing
  Json prompt = nullptr;           // with what its environment said first; null: the row's
  std::string failure = {};        // not empty: it failed, in this way, and its completion leaves its group
};

// One row as a generator returns it.
struct DrawnRow {
  std::vector<TokenId> ids{};      // up to and including the end token
  std::vector<float> log_probs{};  // [ids] nats, under the distribution that was sampled from; empty = not known
  Finish finish = Finish::stop;
  std::vector<std::uint8_t> loss_mask = {};  // [ids], 0 = not the model's; empty = all the model's
  std::vector<TokenId> prompt_ids = {};      // where it is not the request's prompt that was continued
  std::int64_t weights_version = -1;         // that generated it; −1 = the generator does not know
  // Of models with experts, where the generator notes them: the experts of every token that it computed, prompt and ids but the last,
  // [prompt + ids − 1, W]: W numbers of the layers with experts, one after the other, the likeliest first. Empty = not noted.
  std::vector<std::uint16_t> routed_experts = {};
};

// One completion as a generator returns it: a row, and where its history was edited on the way the rows that follow, each with a
// prompt of its own.
struct Completion : DrawnRow {
  std::shared_ptr<const Interaction> interaction = nullptr;  // of several turns
  std::vector<DrawnRow> further = {};
};

// A row of an episode: what the model scores as one sequence, and what is known of each token of its completion.
struct Row {
  std::vector<TokenId> prompt_ids{};         //
  std::vector<TokenId> completion_ids{};     // [T]
  std::vector<float> sampling_log_probs{};   // [T] or empty: from the generator
  std::vector<float> old_log_probs{};        // [T] or empty: of the policy that generated, by the trainer's own scoring
  std::vector<float> reference_log_probs{};  // [T] or empty
  std::vector<std::uint8_t> loss_mask{};     // [T] or empty = all ones; 0 = token came from a tool or environment
  std::string text{};                        // decoded completion, special tokens skipped
  Finish finish = Finish::stop;
  std::int64_t weights_version = 0;                // version of the weights that generated it
  std::vector<std::uint16_t> routed_experts = {};  // as DrawnRow's
  bool own_prompt = false;                         // prompt_ids are not those of the dataset row
};

// One sample of a generation batch: the rows that it is made of, and what is said of all of them together.
struct Episode {
  std::int64_t dataset_row = 0;  // of the prompt
  SharedJson prompt{};           // shared by the group: string or messages
  Json columns{};                // other dataset columns, object
  std::vector<Row> rows =
      std::vector<Row>(1);           // in the order in which they were played; several where its history was edited
  std::vector<double> rewards = {};  // one per reward function, NaN = not applicable
  double advantage = 0.0;
  // A known answer to the prompt, whose likelihood the loss may add, after the prompt of the first row; the first episode of a
  // group has it.
  std::vector<TokenId> answer_ids = {};
  std::vector<std::uint8_t> answer_mask = {};  // as TokenizedPrompt's
  Json logged{};  // what reward functions logged about it (log_extra), an object; null = nothing
  std::shared_ptr<const Interaction> interaction =
      nullptr;  // of several turns; not in checkpoints, for rewards are known then

  [[nodiscard]] Row& first() { return rows.front(); }
  [[nodiscard]] const Row& first() const { return rows.front(); }
};

// A row together with its episode, which outlives it: what a loss sees.
class EpisodeRow {
 public:
  EpisodeRow(Episode& episode, Row& row) : episode_(&episode), row_(&row) {}

  [[nodiscard]] Row& operator*() { return *row_; }
  [[nodiscard]] const Row& operator*() const { return *row_; }
  [[nodiscard]] Row* operator->() { return row_; }
  [[nodiscard]] const Row* operator->() const { return row_; }

  [[nodiscard]] const Episode& episode() const { return *episode_; }
  [[nodiscard]] bool has_answer() const { return row_ == &episode_->rows.front() && !episode_->answer_ids.empty(); }

 private:
  Episode* episode_;
  Row* row_;
};

}  // namespace rlalgo::data
