// The few Python pickles that vLLM's process groups leave in their store: an ncclUniqueId, a short text, None.
//
// What is written is what Python's own pickle.dumps(object, 4) writes, to the byte. What is read may be of another
// protocol from 2 on; nothing of it is executed.
//
// Errors: [rlalgo.distributed.19] a pickle of something else.
#pragma once

#include <optional>
#include <string>

namespace rlalgo::distributed {

// `id`: the 128 bytes of ncclGetUniqueId().
[[nodiscard]] std::string pickled_nccl_id(const std::string& id);
[[nodiscard]] std::string nccl_id_in(const std::string& pickle);

// ASCII, at most 255 bytes.
[[nodiscard]] std::string pickled_text(const std::string& text);
[[nodiscard]] std::string pickled_none();
// Nothing: None.
[[nodiscard]] std::optional<std::string> text_in(const std::string& pickle);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/pickle_impl.hpp>
#endif
