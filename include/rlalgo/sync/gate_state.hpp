// What a weight gate knows, and what may happen next: a state machine without threads, which weight_gate.hpp puts under one mutex.
//
//              begin_call              begin_publish (exclusive)
//   call under way ◄──────── nobody ────────► publish under way
//              end_call ──────►    ◄──────── end_publish: the version in force moves
//
// An exclusive publish and a call exclude each other, and no call begins while such a publish waits: so a call under way is the last
// one of its version. A publish that is not exclusive takes place whatever is under way; calls keep the weights that they began with.
// Lost weights (lose) stay lost until a publish ends; a call that waits for them holds nothing.
// tests/sync/gate_state_test.cpp walks all interleavings of a generator, a trainer and a server that is started anew.
#pragma once

#include <cstdint>

namespace rlalgo::sync {

class GateState {
 public:
  // Published last.
  [[nodiscard]] std::int64_t version() const noexcept { return version_; }

  [[nodiscard]] bool may_call() const noexcept { return holder_ == Holder::nobody && waiting_ == 0; }
  void begin_call() noexcept {
    holder_ = Holder::call;
    doubted_ = false;
  }
  void end_call() noexcept { holder_ = Holder::nobody; }

  void wait_to_publish() noexcept { ++waiting_; }
  [[nodiscard]] bool may_publish() const noexcept { return holder_ == Holder::nobody; }
  void begin_publish() noexcept {
    --waiting_;
    holder_ = Holder::publish;
    doubted_ = false;
  }
  void end_publish() noexcept { holder_ = Holder::nobody; }
  // Within a publish: this version is in force.
  void put_in_force(std::int64_t version) noexcept {
    version_ = version;
    lost_ = false;
  }

  // A connection broke within the call or publish under way: who serves the weights may have lost them.
  void doubt() noexcept { doubted_ = true; }
  [[nodiscard]] bool doubted() const noexcept { return doubted_; }
  // They are lost, and to be handed over again.
  void lose() noexcept { lost_ = true; }
  [[nodiscard]] bool lost() const noexcept { return lost_; }

 private:
  enum class Holder { nobody, call, publish };
  Holder holder_ = Holder::nobody;
  int waiting_ = 0;  // publishes
  std::int64_t version_ = -1;
  bool doubted_ = false, lost_ = false;
};

}  // namespace rlalgo::sync
