#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/os/home_path.hpp>

using rlalgo::os::expand_home;
using rlalgo::support::ScopedVariable;

TEST_CASE("~ is the home directory at the beginning of a path, and nowhere else") {
  const ScopedVariable home("HOME", "/home/somebody");
  CHECK(expand_home("~") == "/home/somebody");
  CHECK(expand_home("~/models/x") == "/home/somebody/models/x");
  for (const char* path : {"", "models", "./~/x", "/a/~", "a~", "/~"}) CHECK(expand_home(path) == path);
}

TEST_CASE("~user is the home of that user; a user that nobody knows is refused") {
  const passwd* self = ::getpwuid(::getuid());
  REQUIRE(self != nullptr);
  const std::string name = self->pw_name, directory = self->pw_dir;
  CHECK(expand_home("~" + name + "/x") == directory + "/x");
  CHECK(expand_home("~" + name) == directory);
  CHECK_THROWS_WITH(expand_home("~no-such-user-here/x", "output_dir"),
                    Catch::Contains("[rlalgo.os.9]") && Catch::Contains("~no-such-user-here/x") &&
                        Catch::Contains("output_dir") && Catch::Contains("./~no-such-user-here/x"));
  const ScopedVariable none("HOME", "");
  CHECK(expand_home("~/x") == directory + "/x");  // from the list of users
}
