// What a model talks to between its own messages: an environment that observes, rewards and ends an episode.
//
// One completion of a multi-turn run is an episode: reset, then the model's message and the environment's turn by
// turns. A user writes one `Environment`; a run holds `Environments`, which plays all episodes of a generation side by
// side, so that another process is asked once per turn and not once per episode. inference/multi_turn.hpp drives it.
//
// Reproducibility: what an episode does may depend on its row, its seed and the messages only; then a resumed run plays
// the same episodes.
//
// Errors: [rlalgo.environment.1] an environment threw.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>

namespace rlalgo::environment {

using Json = nlohmann::ordered_json;

// What the environment does with one message of the model.
struct Turn {
  Json observation = nullptr;  // a string: what a user says next; a list: messages as they are; null: nothing, the end
  double reward = 0.0;         // of this turn; an episode's reward is the sum
  bool done = false;           // the model is not asked again, and the observation is not shown to it
};

// One episode at a time. reset() gets the dataset row (an object: the columns, and "prompt") and returns what the
// environment says first, appended to the prompt, or null.
template <class E>
concept Environment = requires(E& environment, const Json& row, std::uint64_t seed, const std::string& text) {
  { environment.reset(row, seed) } -> std::convertible_to<Json>;
  { environment.step(text) } -> std::same_as<Turn>;
};

struct Start {
  Json row{};                    // the dataset's columns, and "prompt" where the row has one
  std::uint64_t seed = 0;        // a function of the run's seed, the generation and the completion's index
  std::uint64_t group_seed = 0;  // one for all completions of a prompt
  bool own_task = false;         // the environment says what there is to do: there is no prompt
};

// A message of the model in one of the episodes: {"role": "assistant", "content": …[, "tool_calls": …]}.
struct Said {
  std::size_t episode = 0;
  Json message;
};

struct Ending {
  double reward = 0.0;  // added to the turns' rewards
  std::int64_t tool_calls = 0;
  std::int64_t tool_failures = 0;  // calls answered with an error
  std::string failure = {};        // not empty: the episode failed, in this way, and its completion leaves its group
};

// What a prompt (a text or messages) is when the environment has said something first, a text or a list of text parts:
// it is appended to the last message.
[[nodiscard]] inline Json opened(const Json& prompt, const Json& said) {
  const auto parts = [](const Json& content) {
    return content.is_array() ? content : Json::array({{{"type", "text"}, {"text", content}}});
  };
  const auto text = [](const Json& content) {
    if (content.is_string()) return content.get<std::string>();
    std::string all;
    for (const Json& part : content) all += part.at("text").get<std::string>();
    return all;
  };
  if (!prompt.is_array()) return text(prompt) + text(said);
  Json out = prompt;
  Json& last = out.back()["content"];
  if (last.is_null()) last = "";
  if (last.is_string() && said.is_string()) {
    last = text(last) + text(said);
  } else {
    last = parts(last);
    for (const Json& part : parts(said)) last.push_back(part);
  }
  return out;
}

// A reward that environments give: its name in metrics, and which of several environments give it; empty: all.
struct RewardName {
  std::string name;
  std::vector<std::string> environments = {};
};

// Episodes side by side: room, begin, any number of steps, finish.
class Environments {
 public:
  virtual ~Environments() = default;
  // The name of the reward in metrics: rewards/<name>/mean. Empty: this environment gives no reward.
  [[nodiscard]] virtual std::string reward_name() const = 0;
  // All rewards: of several environments (several.hpp) more than one.
  [[nodiscard]] virtual std::vector<RewardName> rewards() const {
    return reward_name().empty() ? std::vector<RewardName>() : std::vector<RewardName>{{reward_name()}};
  }
  // JSON schemas of the tools, for the chat template; null = none.
  [[nodiscard]] virtual Json tools() const { return nullptr; }
  // Of the environment that plays a row, an object.
  [[nodiscard]] virtual Json tools_of(const Json& /*row*/) const { return tools(); }
  // How many of `wanted` episodes may begin now; at least one. The others do when these are finished.
  virtual std::size_t room(std::size_t wanted) { return wanted; }
  // How many of `waiting`, from the first.
  virtual std::size_t room_for(std::span<const Start> waiting) { return room(waiting.size()); }
  // Starts one episode for each entry; what each says first, or null.
  virtual std::vector<Json> begin(std::span<const Start> starts) = 0;
  // One turn for each message.
  virtual std::vector<Turn> step(std::span<const Said> said) = 0;
  // One ending for each episode begun.
  virtual std::vector<Ending> finish() = 0;
};

namespace detail {

template <Environment E>
class Alone final : public Environments {
 public:
  Alone(std::string name, std::function<E()> make) : name_(std::move(name)), make_(std::move(make)) {}

  [[nodiscard]] std::string reward_name() const override { return name_; }

  std::vector<Json> begin(std::span<const Start> starts) override {
    std::vector<Json> out;
    while (instances_.size() < starts.size()) instances_.push_back(make_());
    episodes_ = starts.size();
    for (std::size_t i = 0; i < starts.size(); ++i)
      out.push_back(guarded(i, "reset", [&]() -> Json { return instances_[i].reset(starts[i].row, starts[i].seed); }));
    return out;
  }

  std::vector<Turn> step(std::span<const Said> said) override {
    std::vector<Turn> out;
    for (const Said& one : said)
      out.push_back(guarded(one.episode, "step", [&] {
        return instances_[one.episode].step(one.message.at("content").template get_ref<const std::string&>());
      }));
    return out;
  }

  std::vector<Ending> finish() override { return std::vector<Ending>(episodes_); }

 private:
  template <class F>
  auto guarded(std::size_t episode, const char* during, F work) -> decltype(work()) {
    try {
      return work();
    } catch (const core::Error&) {
      throw;
    } catch (const std::exception& e) {
      core::raise("environment", 1,
                  {.what = "the environment '" + name_ + "' threw",
                   .found = e.what(),
                   .where = std::string(during) + " of episode " + std::to_string(episode),
                   .remedy = "end the episode (Turn::done) when it cannot go on"});
    }
  }

  std::string name_;
  std::function<E()> make_;
  std::vector<E> instances_;  // kept and reset: making one may be expensive
  std::size_t episodes_ = 0;
};

}  // namespace detail

// Episodes that know nothing of each other, each an E that `make` makes.
template <Environment E>
[[nodiscard]] std::shared_ptr<Environments> each(std::string name, std::function<E()> make) {
  return std::make_shared<detail::Alone<E>>(std::move(name), std::move(make));
}
template <Environment E>
requires std::default_initializable<E>
[[nodiscard]] std::shared_ptr<Environments> each(std::string name) {
  return each<E>(std::move(name), [] { return E(); });
}

}  // namespace rlalgo::environment
