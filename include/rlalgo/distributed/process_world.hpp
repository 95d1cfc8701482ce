// A World of processes: they find each other by a store (c10d's TCPStore), exchange host values through it, and sum tensors with
// Gloo.
//
//   if (const auto place = place_from_environment())            RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//     world = join_world(*place, 60);
//
// The store is rank 0's, unless TORCHELASTIC_USE_AGENT_STORE is True: then the process that started the ranks has it (torchrun, and
// `rlalgo train --nproc-per-node`).
//
// Waiting: a rank shows every now and then that it lives. One that computes, writes or generates is waited for; one that is
// silent for `seconds` fails all that wait for it. So does one that says that it failed (World::fail), at once, and one whose
// end its starter reports (report_failure). Each operation carries its number and its name: ranks that are not at the same
// one fail, too. A World that has failed is good for nothing more.
// Other threads than the first have a duplicate with operations of their own (World::duplicate); the first shows signs of life for
// all.
// Sums of tensors go in flat buckets of at most 25 MB, in float32, float64 where a tensor has that.
// What all ranks have read is taken out of the store at the next operation.
//
// Errors, each with rank, step and operation: [rlalgo.os.8] another rank has given up; [rlalgo.distributed.3] not all ranks came in time; [.4] the store or a sum
// failed; [.6] a rank is silent; [.7] the environment does not say where a rank stands; [.8] another rank failed; [.9] the
// ranks are at different operations; [.10] ranks that cannot form a team.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/distributed/world.hpp>

namespace rlalgo::distributed {

struct Place {
  int rank = 0;
  int size = 1;
  std::string host;  // of the store
  std::uint16_t port = 0;
  bool hosted = false;  // the starter of the ranks has the store
};

// None where neither RANK nor WORLD_SIZE is set, or the world is of one rank.
[[nodiscard]] std::optional<Place> place_from_environment();

// Waits for all ranks. `seconds`: how long for them, and how long a rank may be silent from then on.
[[nodiscard]] std::shared_ptr<World> join_world(const Place& place, double seconds);

// For who started the ranks: which one failed first, and how.
struct Failure {
  int rank = 0;
  std::string text;
};
void report_failure(const Store& store, const Failure& failure);
[[nodiscard]] std::optional<Failure> first_failure(const Store& store);
// Whether a rank has entered a step.
[[nodiscard]] bool has_begun(const Store& store);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/process_world_impl.hpp>
#endif
