#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <string>

#include <rlalgo/os/file_digest.hpp>

using rlalgo::os::file_digest;

TEST_CASE(
    "the digest of a file is that of its bytes, in however many pieces it is read, and a file that cannot be read is "
    "an error") {
  const rlalgo::support::ScratchDirectory scratch;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{200}, std::size_t{3000000}}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 251);
    CHECK(file_digest(scratch.write("file", bytes)) == rlalgo::core::Digest().update(bytes).hex());
  }
  CHECK(rlalgo::support::raised_by([&] { (void)file_digest(scratch.path() / "absent"); }).find("os.1") !=
        std::string::npos);
}
