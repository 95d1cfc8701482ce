// The digest of a file's bytes (core/digest.hpp).
// Errors: [rlalgo.os.1] a file that cannot be read, or is no regular file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::os {

[[nodiscard]] inline std::string file_digest(const std::filesystem::path& path) {
  const RegularFile file(path);
  require_open(file, path);
  core::Digest digest;
  const int failed = read_pieces(file, [&](std::string_view piece) { digest.update(piece); });
  if (failed != 0) raise_file_error("cannot read the file", path, failed);
  return digest.hex();
}

}  // namespace rlalgo::os
