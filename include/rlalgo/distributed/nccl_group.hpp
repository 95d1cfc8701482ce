// Processes that broadcast over NCCL, and meet as vLLM's do:
//
//   rank 0 broadcasts its ncclUniqueId through a StatelessGroup → all call ncclCommInitRank → one sum of one float32
//
//   const auto group = join_nccl(store, NcclLibrary::load(), 1, 2, 60);    rank 1 of 2, on GPU 0
//   group->broadcast(tensor, 1, 60);
//
// Tensors of a GPU are sent from where they are, those of the CPU by way of a buffer on the GPU, in their own type. The
// barrier is the StatelessGroup's. Every rank needs a GPU of its own: NCCL refuses two ranks on one.
// A rank that comes late or stays away, and one that dies, is noticed at the deadline at the latest: communicators are
// non-blocking ones, and what fails is aborted. Broadcasts of different sizes are not noticed, and end as NCCL has it.
//
// Errors: [rlalgo.distributed.3] not all came in time; [.4] an operation failed, or was not done in time; [.18] a call of
// NCCL or of the CUDA runtime failed; [.19] of pickle.hpp.
#pragma once

#include <memory>

#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>

namespace rlalgo::distributed {

// Waits for all ranks; the group keeps the store. `device`: of the GPUs that this process sees.
[[nodiscard]] std::unique_ptr<ProcessGroup> join_nccl(const Store& store, std::shared_ptr<const NcclLibrary> library,
                                                      int rank, int size, double seconds, int device = 0);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/nccl_group_impl.hpp>
#endif
