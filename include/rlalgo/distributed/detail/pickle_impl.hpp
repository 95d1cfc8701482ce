// Definitions of pickle.hpp.
//
// Opcodes: 80 n protocol · 95 u64 length of what follows · 8c n text of n bytes · 58 u32 text · 43 n bytes · 4e None ·
// 94 remember · 93 the class of that module and name · 7d {} · 85, 86 tuple of one, two · 52 call · 2e end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/pickle.hpp>

namespace rlalgo::distributed {

namespace detail {

constexpr std::size_t pickled_id_bytes = 128;

[[noreturn]] inline void refuse_pickle(const std::string& pickle, const char* expected) {
  std::string found;
  for (const char c : pickle.substr(0, 40)) {
    found += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4U];
    found += "0123456789abcdef"[static_cast<unsigned char>(c) & 15U];
  }
  core::raise("distributed", 19,
              {.what = "the other process left something else in the store than vLLM's process groups do",
               .found = std::to_string(pickle.size()) + " bytes, " + found,
               .expected = std::string("the pickle of ") + expected});
}

// Little endian.
inline std::string number_bytes(std::uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>((value >> (8U * static_cast<unsigned>(i))) & 255U);
  return out;
}

inline std::string short_text(std::string_view text) {
  return "\x8c" + number_bytes(text.size(), 1) + std::string(text);
}

inline std::string framed(const std::string& body) { return "\x80\x04\x95" + number_bytes(body.size(), 8) + body; }

}  // namespace detail

RLALGO_INLINE std::string pickled_nccl_id(const std::string& id) {
  std::string body;
  body += detail::short_text("_ctypes") + "\x94" + detail::short_text("_unpickle") + "\x94\x93\x94";
  body += detail::short_text("vllm.distributed.device_communicators.pynccl_wrapper") + "\x94";
  body += detail::short_text("ncclUniqueId") + "\x94\x93\x94}\x94" + "C\x80" + id;
  body += "\x94\x86\x94\x86\x94R\x94.";
  return detail::framed(body);
}

RLALGO_INLINE std::string nccl_id_in(const std::string& pickle) {
  const std::size_t at = pickle.find("C\x80");
  if (at == std::string::npos || pickle.size() < at + 2 + detail::pickled_id_bytes)
    detail::refuse_pickle(pickle, "an ncclUniqueId");
  return pickle.substr(at + 2, detail::pickled_id_bytes);
}

RLALGO_INLINE std::string pickled_text(const std::string& text) {
  return detail::framed(detail::short_text(text) + "\x94.");
}

RLALGO_INLINE std::string pickled_none() { return "\x80\x04N."; }

RLALGO_INLINE std::optional<std::string> text_in(const std::string& pickle) {
  std::size_t at = 0;
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < pickle.size() ? static_cast<unsigned char>(pickle[i]) : 256U;
  };
  const auto refuse = [&] { detail::refuse_pickle(pickle, "a text or None"); };
  if (byte(0) != 0x80 || byte(1) > 5) refuse();
  at = 2;
  if (byte(at) == 0x95) at += 9;
  if (byte(at) == 'N' && byte(at + 1) == '.') return std::nullopt;
  std::size_t size = 0;
  if (byte(at) == 0x8c) {
    size = byte(at + 1);
    at += 2;
  } else if (byte(at) == 'X' && at + 5 <= pickle.size()) {
    for (std::size_t i = 4; i > 0; --i) size = size * 256 + byte(at + i);
    at += 5;
  } else {
    refuse();
  }
  if (at > pickle.size() || size > pickle.size() - at) refuse();
  return pickle.substr(at, size);
}

}  // namespace rlalgo::distributed
