// Definitions of rank_cards.hpp.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/nccl_library_impl.hpp>
#include <rlalgo/distributed/rank_cards.hpp>

namespace rlalgo::distributed {

RLALGO_INLINE RankCard rank_card_here(const NcclLibrary& library, int device) {
  const char* const host = std::getenv("NCCL_HOSTID");
  return {.nccl = library.version(), .gpu = library.uuid(device), .host = host == nullptr ? "" : host};
}

RLALGO_INLINE void require_own_cards(World& world, const RankCard& own) {
  if (world.size() == 1) return;
  const auto all = world.gather(
      "GPUs of the ranks",
      nlohmann::json({own.nccl, own.gpu, own.host}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::map<std::pair<std::string, std::string>, std::size_t> seen;
  int first = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const nlohmann::json card = nlohmann::json::parse(all[r]);
    const int version = card.at(0).get<int>();
    if (r == 0) first = version;
    if (version != first)
      core::raise("distributed", 21,
                  {.what = "the ranks have different versions of NCCL",
                   .found = detail::version_text(version) + " on rank " + std::to_string(r),
                   .expected = detail::version_text(first) + " as on rank 0",
                   .remedy = "give all ranks the same file in RLALGO_NCCL_LIBRARY, or the same installation"});
    const std::string gpu = card.at(1).get<std::string>();
    if (gpu.empty()) continue;
    const auto [place, is_new] = seen.try_emplace({gpu, card.at(2).get<std::string>()}, r);
    if (!is_new)
      core::raise(
          "distributed", 22,
          {.what = "two ranks have the same GPU",
           .found = "GPU-" + gpu + " on rank " + std::to_string(place->second) + " and rank " + std::to_string(r),
           .expected = "a GPU for each rank: NCCL refuses two ranks on one",
           .remedy = "start as many ranks on a machine as it has GPUs, each with its LOCAL_RANK (torchrun and "
                     "--nproc-per-node set it; SLURM: export LOCAL_RANK=$SLURM_LOCALID); see "
                     "CUDA_VISIBLE_DEVICES; for a trial of NCCL alone give each rank an NCCL_HOSTID of its own"});
  }
}

}  // namespace rlalgo::distributed
