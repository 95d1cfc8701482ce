#include <rlalgo/sync/schedule_state.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/interleavings.hpp>

#include <rlalgo/sync/gate_state.hpp>

using namespace rlalgo;
using sync::GateState;
using sync::ScheduleState;

namespace {

// A record that is repeated: the steps of ScheduledGenerator and ScheduledSync (sync/scheduled.hpp) around a gate.
struct Repeated {
  enum class Producer { idle, asked, begun, calling } producer = Producer::idle;
  enum class Trainer { training, asked, waiting, publishing } trainer = Trainer::training;
  std::vector<std::int64_t> recorded;  // of each call its version
  std::size_t call = 0;
  std::int64_t last_version = 3;
  GateState gate;
  ScheduleState schedule;

  explicit Repeated(std::vector<std::int64_t> versions) : recorded(std::move(versions)) {
    for (std::size_t i = 0; i < recorded.size(); ++i) schedule.expect({i, 0}, recorded[i]);
  }
  [[nodiscard]] std::string key() const {
    return std::to_string(static_cast<int>(producer)) + std::to_string(static_cast<int>(trainer)) + " " +
           std::to_string(call) + " " + std::to_string(gate.version()) + (gate.may_call() ? "c" : "-") +
           (gate.may_publish() ? "p" : "-");
  }
  [[nodiscard]] bool ended() const { return call == recorded.size() && gate.version() == last_version; }
  [[nodiscard]] std::vector<Repeated> next() const {
    std::vector<Repeated> out;
    const auto step = [&](auto&& change) {
      out.push_back(*this);
      change(out.back());
    };
    if (producer == Producer::idle && call < recorded.size())
      step([](Repeated& s) {
        s.schedule.next(s.call);
        s.producer = Producer::asked;
      });
    if (producer == Producer::asked && schedule.may_begin()) step([](Repeated& s) { s.producer = Producer::begun; });
    if (producer == Producer::begun && gate.may_call())
      step([](Repeated& s) {
        s.gate.begin_call();
        s.producer = Producer::calling;
        REQUIRE(s.gate.version() == s.recorded[s.call]);
      });
    if (producer == Producer::calling)
      step([](Repeated& s) {
        s.gate.end_call();
        s.schedule.end();
        ++s.call;
        s.producer = Producer::idle;
      });
    if (trainer == Trainer::training && gate.version() < last_version)
      step([](Repeated& s) {
        s.schedule.begin_publish(s.gate.version() + 1);
        s.trainer = Trainer::asked;
      });
    if (trainer == Trainer::asked && !schedule.earlier_than(gate.version() + 1))
      step([](Repeated& s) {
        s.gate.wait_to_publish();
        s.trainer = Trainer::waiting;
      });
    if (trainer == Trainer::waiting && gate.may_publish())
      step([](Repeated& s) {
        s.gate.begin_publish();
        s.trainer = Trainer::publishing;
      });
    if (trainer == Trainer::publishing)
      step([](Repeated& s) {
        s.gate.put_in_force(s.gate.version() + 1);
        s.gate.end_publish();
        s.schedule.published(s.gate.version());
        s.trainer = Trainer::training;
      });
    return out;
  }
};

}  // namespace

TEST_CASE("every record of five calls is repeated in every interleaving, with its versions and to its end") {
  std::size_t records = 0;
  for (std::int64_t a = 0; a < 4; ++a)
    for (std::int64_t b = a; b < 4; ++b)
      for (std::int64_t c = b; c < 4; ++c)
        for (std::int64_t d = c; d < 4; ++d)
          for (std::int64_t e = d; e < 4; ++e, ++records) {
            INFO(a << b << c << d << e);
            CHECK(support::walk(Repeated({a, b, c, d, e})).ends == 1);
          }
  CHECK(records == 56);
}

TEST_CASE("calls are counted within their generation, and one that was made again replaces its record") {
  ScheduleState s;
  CHECK(s.empty());
  s.expect({7, 0}, 1);
  s.expect({7, 1}, 1);
  s.expect({8, 0}, 2);
  s.expect({7, 0}, 5);  // made again, in one call
  CHECK(s.earlier_than(3) == std::pair(ScheduleState::Call{8, 0}, std::int64_t{2}));
  CHECK(s.next(8) == ScheduleState::Call{8, 0});
  CHECK_FALSE(s.may_begin());
  s.published(2);
  CHECK(s.may_begin());
  s.end();
  CHECK_FALSE(s.earlier_than(5));
  CHECK(s.next(8) == ScheduleState::Call{8, 1});
  CHECK(s.may_begin());  // not in the record
  CHECK(s.next(7) == ScheduleState::Call{7, 0});
  CHECK_FALSE(s.may_begin());
  CHECK(s.next(7) == ScheduleState::Call{7, 1});
  CHECK(s.may_begin());
  s.begin_publish(6);  // the first of this process: what came before is past
  CHECK(s.empty());
  s.expect({9, 0}, 6);
  s.begin_publish(7);
  CHECK(s.earlier_than(7).has_value());
  s.give_up();
  CHECK(s.empty());
}
