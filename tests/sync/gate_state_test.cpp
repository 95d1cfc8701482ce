#include <rlalgo/sync/gate_state.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/interleavings.hpp>

using namespace rlalgo;
using sync::GateState;

namespace {

std::string text_of(const GateState& g) {
  return std::to_string(g.version()) + (g.may_call() ? "c" : "-") + (g.may_publish() ? "p" : "-") +
         (g.lost() ? "l" : "-") + (g.doubted() ? "d" : "-");
}

// A generator that makes some calls, a trainer that publishes some versions, and a server between them that may be started anew at
// any moment: the steps of RecoveringGenerator, GatedSync and restore_if_lost (sync/recovering.hpp).
struct OneRank {
  enum class Producer { idle, calling, drawn, waiting } producer = Producer::idle;
  enum class Trainer { training, waiting, publishing, sent } trainer = Trainer::training;
  GateState gate;
  int calls = 4, versions = 4, restarts = 3;  // that are left
  std::int64_t next_version = 0;
  std::int64_t publishing = -1;  // by the trainer
  std::int64_t server = -1;      // has this version; −1: none
  std::int64_t began = -1, drew = -1;

  [[nodiscard]] std::string key() const {
    std::string out = text_of(gate);
    for (const std::int64_t n : {static_cast<std::int64_t>(producer), static_cast<std::int64_t>(trainer),
                                 static_cast<std::int64_t>(calls), static_cast<std::int64_t>(versions),
                                 static_cast<std::int64_t>(restarts), next_version, publishing, server, began, drew})
      out += " " + std::to_string(n);
    return out;
  }
  [[nodiscard]] bool ended() const {
    return calls == 0 && versions == 0 && producer == Producer::idle && trainer == Trainer::training && !gate.lost();
  }
  [[nodiscard]] std::vector<OneRank> next() const {
    std::vector<OneRank> out;
    const auto step = [&](auto&& change) {
      out.push_back(*this);
      change(out.back());
    };
    const bool under_way = producer == Producer::calling || producer == Producer::drawn;
    const bool changing = trainer == Trainer::publishing || trainer == Trainer::sent;
    REQUIRE_FALSE((under_way && changing));                           // a publish is between two calls
    if (under_way) REQUIRE(gate.version() == began);                  // so a call has one version
    if (trainer == Trainer::waiting) REQUIRE_FALSE(gate.may_call());  // the call under way is the last one before it
    if (producer == Producer::idle && calls > 0 && gate.version() >= 0 && gate.may_call())
      step([](OneRank& s) {
        s.gate.begin_call();
        s.producer = Producer::calling;
        s.began = s.gate.version();
      });
    if (producer == Producer::calling)
      step([](OneRank& s) {
        s.producer = Producer::drawn;
        s.drew = s.server;
      });
    if (producer == Producer::drawn)
      step([](OneRank& s) {
        s.gate.end_call();
        s.producer = Producer::idle;
        if (s.drew == s.began) {
          --s.calls;
        } else {
          s.gate.lose();
          s.producer = Producer::waiting;
        }
        s.began = s.drew = -1;
      });
    if (producer == Producer::waiting && !gate.lost()) step([](OneRank& s) { s.producer = Producer::idle; });
    // Where no version is left, the trainer waits for the generator and hands over what is in force.
    if (trainer == Trainer::training && (versions > 0 || gate.lost()))
      step([](OneRank& s) {
        s.publishing = s.versions > 0 ? s.next_version : s.gate.version();
        s.gate.wait_to_publish();
        s.trainer = Trainer::waiting;
      });
    if (trainer == Trainer::waiting && gate.may_publish())
      step([](OneRank& s) {
        s.gate.begin_publish();
        s.trainer = Trainer::publishing;
      });
    if (trainer == Trainer::publishing)
      step([](OneRank& s) {
        s.server = s.publishing;
        s.trainer = Trainer::sent;
      });
    if (trainer == Trainer::sent)
      step([](OneRank& s) {
        s.gate.put_in_force(s.publishing);
        s.gate.end_publish();
        s.trainer = Trainer::training;
        if (s.publishing == s.next_version) {
          ++s.next_version;
          --s.versions;
        }
        s.publishing = -1;
      });
    if (restarts > 0)
      step([](OneRank& s) {
        s.server = -1;
        --s.restarts;
      });
    return out;
  }
};

// Two ranks, each with a generator: their calls agree on a version (GatedGenerator), and their trainers publish together (GatedSync).
struct TwoRanks {
  struct Rank {
    enum class Producer { idle, told, calling, behind } producer = Producer::idle;
    enum class Trainer { training, here, waiting, publishing } trainer = Trainer::training;
    GateState gate;
    int calls = 3;
    std::int64_t told = -1, latest = -1;
    std::vector<std::int64_t> versions;  // of its calls
  };
  std::array<Rank, 2> ranks;
  std::int64_t last_version = 3;

  [[nodiscard]] std::string key() const {
    std::string out;
    for (const Rank& r : ranks) {
      out += text_of(r.gate) + std::to_string(static_cast<int>(r.producer)) +
             std::to_string(static_cast<int>(r.trainer)) + std::to_string(r.calls) + " " + std::to_string(r.told) +
             " " + std::to_string(r.latest) + ":";
      for (const std::int64_t v : r.versions) out += std::to_string(v);
      out += " | ";
    }
    return out;
  }
  [[nodiscard]] bool ended() const {
    for (const Rank& r : ranks)
      if (r.calls > 0 || r.gate.version() < last_version || r.producer != Rank::Producer::idle) return false;
    REQUIRE(ranks[0].versions == ranks[1].versions);
    return true;
  }
  [[nodiscard]] std::vector<TwoRanks> next() const {
    using Producer = Rank::Producer;
    using Trainer = Rank::Trainer;
    std::vector<TwoRanks> out;
    const auto step = [&](auto&& change) {
      out.push_back(*this);
      change(out.back());
    };
    for (std::size_t i = 0; i < 2; ++i) {
      const Rank& r = ranks[i];
      REQUIRE_FALSE(
          ((r.producer == Producer::told || r.producer == Producer::calling) && r.trainer == Trainer::publishing));
      if (r.producer == Producer::idle && r.calls > 0 && r.gate.version() >= 0 && r.gate.may_call())
        step([i](TwoRanks& s) {
          s.ranks[i].gate.begin_call();
          s.ranks[i].told = s.ranks[i].gate.version();
          s.ranks[i].producer = Producer::told;
        });
      if (r.producer == Producer::calling)
        step([i](TwoRanks& s) {
          Rank& mine = s.ranks[i];
          mine.versions.push_back(mine.gate.version());
          mine.gate.end_call();
          --mine.calls;
          mine.producer = Producer::idle;
        });
      if (r.producer == Producer::behind && r.gate.version() >= r.latest)
        step([i](TwoRanks& s) { s.ranks[i].producer = Producer::idle; });
      if (r.trainer == Trainer::training && r.gate.version() < last_version)
        step([i](TwoRanks& s) { s.ranks[i].trainer = Trainer::here; });
      if (r.trainer == Trainer::waiting && r.gate.may_publish())
        step([i](TwoRanks& s) {
          s.ranks[i].gate.begin_publish();
          s.ranks[i].trainer = Trainer::publishing;
        });
      if (r.trainer == Trainer::publishing)
        step([i](TwoRanks& s) {
          Rank& mine = s.ranks[i];
          mine.gate.put_in_force(mine.gate.version() + 1);
          mine.gate.end_publish();
          mine.trainer = Trainer::training;
        });
    }
    if (ranks[0].producer == Producer::told && ranks[1].producer == Producer::told)  // the gather ends on both
      step([](TwoRanks& s) {
        const std::int64_t latest = std::max(s.ranks[0].told, s.ranks[1].told);
        const bool agree = s.ranks[0].told == s.ranks[1].told;
        for (Rank& r : s.ranks) {
          r.producer = agree ? Producer::calling : Producer::behind;
          if (!agree) r.gate.end_call();
          r.latest = agree ? -1 : latest;
          r.told = -1;
        }
      });
    if (ranks[0].trainer == Trainer::here && ranks[1].trainer == Trainer::here)  // the barrier ends on both
      step([](TwoRanks& s) {
        for (Rank& r : s.ranks) {
          r.gate.wait_to_publish();
          r.trainer = Trainer::waiting;
        }
      });
    return out;
  }
};

}  // namespace

TEST_CASE(
    "every interleaving of generator, trainer and a server that is started anew ends, with calls of the published "
    "weights") {
  const support::Walk walk = support::walk(OneRank());
  CHECK(walk.states > 1000);
  CHECK(walk.ends >= 1);
}

TEST_CASE("every interleaving of two ranks ends, and their calls have the same versions") {
  const support::Walk walk = support::walk(TwoRanks());
  CHECK(walk.states > 1000);
  CHECK(walk.ends > 1);  // which versions these are is the clock's business
}

TEST_CASE("a doubt belongs to the call or publish under way, and lost weights stay lost until a publish ends") {
  GateState g;
  g.begin_call();
  g.doubt();
  CHECK(g.doubted());
  g.end_call();
  CHECK(g.doubted());  // of the call that has just ended
  g.wait_to_publish();
  CHECK_FALSE(g.may_call());
  g.begin_publish();
  CHECK_FALSE(g.doubted());
  CHECK_FALSE(g.may_publish());
  g.lose();
  g.end_publish();  // it failed
  CHECK(g.lost());
  CHECK(g.version() == -1);
  CHECK(g.may_call());
  g.put_in_force(4);
  CHECK_FALSE(g.lost());
  CHECK(g.version() == 4);
}
