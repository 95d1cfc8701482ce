// Several environments in one run: the column `environment` of a row names the one that plays it.
//
// An episode is played by its row's environment alone: with the tools and the rewards of that one. Its `reset` gets the
// row without the column. Environments of one kind (of one class) have one reward between them, in the order in which
// they are listed; where rewards of two kinds have the same name, each bears its kind's name instead.
//
// Source: TRL 1.16 `GRPOTrainer(environment_factory={name: factory})`.
// Departure: TRL looks at a row's name when the row is drawn; assembly/conversations.hpp asks of all rows before training.
//
// Errors: [rlalgo.environment.3] a row names none of the environments; (usage) [rlalgo.environment.4] there are no
// environments, or two of one name.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/concept.hpp>

namespace rlalgo::environment {

class Several final : public Environments {
 public:
  struct One {
    std::string name;
    std::shared_ptr<Environments> environments;
    std::string kind = {};  // those of one kind share a reward; empty: of its own kind
  };
  static constexpr const char* column = "environment";

  explicit Several(std::vector<One> all);

  // Which environment a row (an object: its columns) names; `where` is the row's place.
  [[nodiscard]] std::size_t index_of(const Json& row, const std::string& where) const;
  [[nodiscard]] const Environments& at(std::size_t index) const { return *all_.at(index).environments; }

  [[nodiscard]] RLALGO_INLINE std::string reward_name() const override;  // of all, with commas
  [[nodiscard]] RLALGO_INLINE std::vector<RewardName> rewards() const override;
  [[nodiscard]] RLALGO_INLINE Json tools() const override;  // of all; null: none has any
  [[nodiscard]] RLALGO_INLINE Json tools_of(const Json& row) const override;
  RLALGO_INLINE std::size_t room_for(std::span<const Start> waiting) override;
  RLALGO_INLINE std::vector<Json> begin(std::span<const Start> starts) override;
  RLALGO_INLINE std::vector<Turn> step(std::span<const Said> said) override;
  RLALGO_INLINE std::vector<Ending> finish() override;

 private:
  struct Seat {
    std::size_t environment, episode;  // of that environment
  };

  std::vector<One> all_;
  std::vector<Seat> seats_;  // of the episodes begun
};

}  // namespace rlalgo::environment

#ifndef RLALGO_COMPILED
#include <rlalgo/environment/detail/several_impl.hpp>
#endif
