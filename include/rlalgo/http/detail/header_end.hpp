// How much of what was received a Beast parser gets at once: no byte beyond the header before the header is done.
//
// Beast 1.74 forgets the error of a header (a Content-Length beyond the limit) when bytes of the body follow it in the
// same buffer, and then reserves what that header announces.
#pragma once

#include <cstddef>
#include <string_view>

namespace rlalgo::http::detail {

[[nodiscard]] inline std::size_t bytes_for_parser(std::string_view received, bool header_done) {
  const std::size_t end = header_done ? std::string_view::npos : received.find("\r\n\r\n");
  return end == std::string_view::npos ? received.size() : end + 4;
}

}  // namespace rlalgo::http::detail
