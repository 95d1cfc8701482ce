// Processes that tell each other small things through a store, as vLLM's StatelessProcessGroup does:
//
//   broadcast_from/{source}/{i}   what `source` sent to all, a Python pickle; i counts each source's from 0
//   barrier                       rank 0 broadcasts the text barrier_{uuid}; each rank sets arrival_{text}_{rank}, reads all
//                                 of them, and sets departure_{text}_{rank}; rank 0 waits for these and removes all
//   the barrier of older vLLM     each rank in turn broadcasts None
//
// A rank other than 0 sees by rank 0's object which barrier is meant; rank 0 takes either for a rank's arrival. Values
// are removed by their writer after an hour.
//
// Each wait ends within its seconds, also where the process that has the store stands still. A group that failed is good
// for nothing more.
//
// Errors: [rlalgo.distributed.4] the others did not come in time, or the store is gone; [.19] of pickle.hpp.
#pragma once

#include <memory>
#include <string>

#include <rlalgo/distributed/process_group.hpp>

namespace rlalgo::distributed {

class StatelessGroup {
 public:
  StatelessGroup(const Store& store, int rank, int size);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  // What `source` gives: a pickle, on all ranks.
  std::string broadcast(const std::string& pickle, int source, double seconds);
  // Returns when all ranks have called it.
  void barrier(double seconds);
  // Ends what another thread waits for, which then fails.
  void stop() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/stateless_group_impl.hpp>
#endif
