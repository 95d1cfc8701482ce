#include <support/catch.hpp>
#include <support/not_run.hpp>

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <utility>

#include <rlalgo/os/atomic_file.hpp>

using namespace rlalgo::os;
namespace fs = std::filesystem;

namespace {
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "rlalgo_atomic_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};
std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
std::size_t files(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}
}  // namespace

TEST_CASE("a file appears only when it is committed") {
  const Folder folder;
  const fs::path path = folder.path / "a";
  {
    AtomicFile file(path);
    file.write("new");
    CHECK_FALSE(fs::exists(path));
    file.commit();
  }
  CHECK(read(path) == "new");
  {
    AtomicFile file(path);
    file.write("half");
  }
  CHECK(read(path) == "new");
  CHECK(files(folder.path) == 1);
}

TEST_CASE("a file that cannot be created is os.1 with its path") {
  const Folder folder;
  CHECK_THROWS_WITH(write_file(folder.path / "none" / "a", "x"),
                    Catch::Contains("[rlalgo.os.1]") && Catch::Contains("No such file") && Catch::Contains("none/a"));
}

TEST_CASE("devices, named pipes and directories are not replaced, links to files are") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.path / "fifo").c_str(), 0600) == 0);
  fs::create_symlink("/dev/null", folder.path / "device");
  fs::create_directory(folder.path / "folder");
  for (const auto& [name, kind] :
       {std::pair{"fifo", "a named pipe"}, {"device", "a device"}, {"folder", "a directory"}})
    CHECK_THROWS_WITH(write_file(folder.path / name, "x"), Catch::Contains("[rlalgo.os.1]") && Catch::Contains(kind));
  CHECK(fs::is_symlink(folder.path / "device"));
  write_file(folder.path / "a", "old");
  fs::create_symlink("a", folder.path / "link");
  write_file(folder.path / "link", "new");
  CHECK(read(folder.path / "link") == "new");
  CHECK(files(folder.path) == 5);
}

TEST_CASE("a full disk is os.1 and leaves the old file and nothing else") {
  rlalgo::support::needs(::access("/dev/full", W_OK) == 0, "no /dev/full to write to");
  const Folder folder;
  write_file(folder.path / "a", "old");
  // /dev/full stands in for the temporary file: every write to it fails with ENOSPC.
  fs::create_symlink("/dev/full", folder.path / ("a.tmp." + std::to_string(::getpid())));
  CHECK_THROWS_WITH(write_file(folder.path / "a", "new"), Catch::Contains("No space left"));
  CHECK(read(folder.path / "a") == "old");
  CHECK(files(folder.path) == 1);
}
