// Before ranks meet over NCCL: that each has a GPU of its own, and all the same NCCL. NCCL itself would refuse the one late and in words
// of its own, and may hang or worse with the other.
//
// Two ranks may share a GPU where their NCCL_HOSTID differ: NCCL takes them for two machines then, and sends by its sockets. Good for a trial
// of NCCL, and for nothing else.
//
// Errors, on all ranks: [rlalgo.distributed.21] the ranks have different versions of NCCL; [.22] two ranks have the same GPU.
#pragma once

#include <string>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/world.hpp>

namespace rlalgo::distributed {

struct RankCard {
  int nccl = 0;           // version, as NcclLibrary::version()
  std::string gpu = {};   // its UUID, or empty: not known
  std::string host = {};  // NCCL_HOSTID
};

// Of this process; `device`: of the GPUs that it sees.
[[nodiscard]] RankCard rank_card_here(const NcclLibrary& library, int device);

// All ranks together.
void require_own_cards(World& world, const RankCard& own);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/rank_cards_impl.hpp>
#endif
