// Rewards that a NeMo Gym's resources servers give to single completions.
//
//   for each completion, many at a time:   POST /seed_session (the row)   POST /verify (the row and the response)
//
// One session each: the cookies of the first reply go with the second. The row travels as it was read, null or missing
// fields included; of a row with tools the model's calls are calls in the response. The reply's `reward` is a reward
// function, and so is every entry of its `reward_components`.
//
// A completion whose environment failed (gym.hpp has the classes) has no reward: it leaves its group, is counted
// (rollout/failed, rollout/failed/<class>: shares of the completions) and reported in one line a batch. When all of a
// batch fail because nobody answers, the Gym is looked for again, its servers are waited for, and all are asked once more.
// A reply that says that the row itself is wrong ends the run.
//
// Errors: [rlalgo.remote.74] a server refuses a row, with what it says; [.75] a server that cannot judge single turns; [.76]
// no completion of a batch could be judged; [.77] a reply without the component that is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/remote/gym.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

struct GymVerifyConfig {
  double seconds = 30.0;             // for the calls of one completion
  std::size_t at_once = 32;          // completions
  std::string model = "rlalgo";      // the name of the model in the response
  bool refusals_end_the_run = true;  // else they are failures
};

// The name of the resources server of a row: what the dataset says, what the row says, or what its agent uses.
[[nodiscard]] std::string gym_resources_of(const nlohmann::ordered_json& row, const GymDirectory& directory);

// What a model said, as the Responses API has it.
[[nodiscard]] nlohmann::ordered_json gym_response(const std::string& text, bool tools, const std::string& model);

// The dataset column that names a row's server; not sent.
inline constexpr const char* gym_server_column = "resources_server_ref";

class GymVerifier {
 public:
  using Json = nlohmann::ordered_json;

  GymVerifier(std::shared_ptr<Gym> gym, GymVerifyConfig config) : gym_(std::move(gym)), config_(std::move(config)) {}

  struct Outcome {
    double reward = 0.0;
    std::map<std::string, double> components;
    std::string failure;  // its class; empty: judged
    std::string detail;
    bool refused_row = false;
  };

  // One for each completion. Functions that ask about the same call share one answer; `who` asks.
  std::shared_ptr<const std::vector<Outcome>> verify(const reward::RewardCall& call, const std::string& who);

 private:
  std::vector<Outcome> ask_all(const reward::RewardCall& call);
  Outcome ask(const Json& columns, const std::string& text, const std::string& server);
  void report(const std::vector<Outcome>& outcomes, const reward::RewardCall& call);

  std::shared_ptr<Gym> gym_;
  GymVerifyConfig config_;
  std::mutex mutex_;
  std::set<std::string> stateless_;  // servers without /seed_session
  std::set<std::string> classes_;    // of failures so far

  struct Kept {
    std::int64_t step = -1;
    std::vector<std::string> texts;
    std::vector<Json> columns;
    std::set<std::string> served;
    std::shared_ptr<const std::vector<Outcome>> outcomes;
  } kept_;
};

// `component`: an entry of reward_components; empty: the reward itself.
class GymReward final : public reward::RewardFunction {
 public:
  GymReward(std::shared_ptr<GymVerifier> verifier, std::string component)
      : verifier_(std::move(verifier)), component_(std::move(component)) {}
  [[nodiscard]] RLALGO_INLINE std::string name() const override;
  RLALGO_INLINE std::vector<double> operator()(const reward::RewardCall& call) override;

 private:
  std::shared_ptr<GymVerifier> verifier_;
  std::string component_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/gym_rewards_impl.hpp>
#endif
