#include <rlalgo/os/regular_file.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include <support/scratch.hpp>

using namespace rlalgo::os;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

TEST_CASE("a regular file is read whole, up to a limit") {
  const ScratchDirectory scratch;
  CHECK(read_regular_file(scratch.write("a", "hello"), 5).text == "hello");
  CHECK(read_regular_file(scratch.write("b", ""), 0).problem.empty());
  const std::string large = scratch.write("c", std::string(100000, 'x'));
  CHECK(read_regular_file(large, 100000).text.size() == 100000);
  const FileText refused = read_regular_file(large, 99999);
  CHECK(refused.text.empty());
  CHECK(refused.problem == "a file of more than 99999 bytes");
  std::filesystem::resize_file(large, std::uint64_t{1} << 40U);  // of holes
  CHECK(read_regular_file(large, 99999).problem == refused.problem);
  std::filesystem::create_symlink(large, scratch.path() / "link");
  CHECK(RegularFile(scratch.path() / "link").size() == std::uint64_t{1} << 40U);
  // Files without a size are read as far as they go.
  CHECK(read_regular_file("/proc/self/status", 1 << 20).text.find("Name:") == 0);
  CHECK(read_regular_file("/proc/self/status", 10).problem == "a file of more than 10 bytes");
}

TEST_CASE("pieces of a file are its bytes, in order") {
  const ScratchDirectory scratch;
  std::string bytes(3000000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 / 7);
  const RegularFile file(scratch.write("a", bytes));
  std::string got;
  int pieces = 0;
  CHECK(read_pieces(file, [&](std::string_view piece) { got += piece, ++pieces; }) == 0);
  CHECK(got == bytes);
  CHECK(pieces == 3);
  const RegularFile absent(scratch.path() / "absent");
  CHECK(absent.absent());
  CHECK(read_pieces(absent, [](std::string_view) {}) == EBADF);
  CHECK(raised_by([&] { require_open(absent, scratch.path() / "absent"); }).find("rlalgo.os.1") != std::string::npos);
}

TEST_CASE("what is no regular file is refused at once") {
  const ScratchDirectory scratch;
  const std::string fifo = (scratch.path() / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = (scratch.path() / "socket").string();
  REQUIRE(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, name.c_str(), name.size());
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  std::filesystem::create_symlink(fifo, scratch.path() / "link");
  std::filesystem::create_symlink("loop", scratch.path() / "loop");
  const auto problem = [](const std::filesystem::path& path) { return read_regular_file(path, 1000).problem; };
  CHECK(problem(fifo) == "a named pipe, not a regular file");
  CHECK(problem(scratch.path() / "link") == "a named pipe, not a regular file");
  CHECK(problem(name) == "a socket, not a regular file");
  CHECK(problem("/dev/zero") == "a device, not a regular file");
  CHECK(problem("/dev/null") == "a device, not a regular file");
  CHECK(problem(scratch.path()) == "a directory, not a regular file");
  CHECK(problem(scratch.path() / "loop") == std::strerror(ELOOP));
  CHECK_FALSE(read_regular_file(scratch.path() / "loop", 1000).absent);
  CHECK(problem(scratch.path() / std::string(5000, 'n')) == std::strerror(ENAMETOOLONG));
  CHECK(read_regular_file(scratch.path() / "nothing", 1000).absent);
  ::close(listener);
}

TEST_CASE("whether a path exists: yes, no, or a numbered error") {
  const ScratchDirectory scratch;
  CHECK(rlalgo::os::exists(scratch.path()));
  CHECK(rlalgo::os::is_directory(scratch.path()));
  CHECK_FALSE(rlalgo::os::is_regular_file(scratch.path()));
  CHECK_FALSE(rlalgo::os::exists(scratch.path() / "nothing"));
  CHECK_FALSE(rlalgo::os::exists(scratch.write("file", "x") + "/below"));
  std::filesystem::create_symlink("nowhere", scratch.path() / "dangling");
  CHECK_FALSE(rlalgo::os::exists(scratch.path() / "dangling"));
  std::filesystem::create_symlink("loop", scratch.path() / "loop");
  CHECK(lacks(raised_by([&] { (void)rlalgo::os::exists(scratch.path() / "loop"); }),
              {"os.7: ", "Too many levels of symbolic links", "loop"}) == "");
  CHECK(lacks(raised_by([&] { (void)rlalgo::os::is_directory(scratch.path() / std::string(5000, 'n')); }),
              {"os.7: "}) == "");
}
