// Ranks that hold shards of a model must all take part in every pass of any of them: gathers and scatters of weights are
// done together. How many passes a rank has to do is its own affair: its rows, its completions, its share of an evaluation.
//
//   enter(pass)   before a pass: all say what they are about to do; one pass is chosen, and a rank that is about to do
//                 another one, or none, helps with it (Member::help: its gathers and scatters, nothing computed) and asks again
//   settle()      before this rank meets the others elsewhere: helps until nobody has a pass to do
//   begin_fetch() no pass: this rank alone fetches weights, and the others serve it (Member::serve_fetch)
//
// What is chosen is the pass of the first rank that has one, so all know it alike. One exchange of 64 bytes a rank each.
// A member's state follows the rounds, and so is the same on all ranks; ranks that gave up what was under way
// (World::give_up) begin from nothing (Member::reset).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rlalgo/distributed/team.hpp>
#include <rlalgo/model/layer_gate.hpp>

namespace rlalgo::distributed {

class PassRounds {
 public:
  class Member {
   public:
    Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    virtual ~Member() = default;
    // All ranks do this pass, or help with it, from here on: called before either.
    virtual void chosen(const model::LayerGate::Pass& pass) = 0;
    // Takes part in a pass of others.
    virtual void help(const model::LayerGate::Pass& pass) = 0;
    // Serves the rank that fetches (its place in the team) until it ends.
    virtual void serve_fetch(int /*fetcher*/) {}
    // No rank has a pass to do.
    virtual void settled() = 0;
    virtual void reset() noexcept = 0;
  };

  explicit PassRounds(std::shared_ptr<Team> team) : team_(std::move(team)), order_(team_->order()) {}

  [[nodiscard]] Team& team() const { return *team_; }
  [[nodiscard]] const std::shared_ptr<Team>& shared_team() const { return team_; }

  // Members join in the same order on all ranks, and leave when they like: no pass of theirs follows.
  [[nodiscard]] std::int64_t join(Member& member) {
    members_.push_back(&member);
    return static_cast<std::int64_t>(members_.size()) - 1;
  }
  void leave(std::int64_t member) { members_[static_cast<std::size_t>(member)] = nullptr; }

  // Returns when this pass of `member` is the one that all do.
  void enter(std::int64_t member, const model::LayerGate::Pass& pass) { become({member, pass, false}); }
  // Returns when all others serve this rank. What ends it is the member's affair.
  void begin_fetch(std::int64_t member) { become({member, {}, true}); }
  void settle();

 private:
  struct Said {
    std::int64_t member = -1;  // −1: nothing to do
    model::LayerGate::Pass pass = {};
    bool fetch = false;
    friend bool operator==(const Said&, const Said&) = default;
  };
  struct Chosen {
    Said said;
    int rank = 0;  // of the first that said it
  };

  // Returns when it is this rank's turn.
  void become(const Said& own);

  // What is done next: of the first rank that has something to do.
  std::optional<Chosen> ask(const Said& own);
  void help(const Chosen& other);

  std::shared_ptr<Team> team_;
  std::vector<Member*> members_;
  std::uint64_t order_;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/pass_rounds_impl.hpp>
#endif
