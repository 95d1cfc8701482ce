#include <support/catch.hpp>

#include <unistd.h>

#include <rlalgo/run/terminal.hpp>

using rlalgo::run::wants_colours;

TEST_CASE("colours are for terminals, unless NO_COLOR says something or TERM is dumb") {
  CHECK(wants_colours(true, nullptr, nullptr));
  CHECK(wants_colours(true, nullptr, "xterm-256color"));
  CHECK(wants_colours(true, "", "xterm"));
  CHECK_FALSE(wants_colours(true, "1", "xterm"));
  CHECK_FALSE(wants_colours(true, "0", "xterm"));
  CHECK_FALSE(wants_colours(true, nullptr, "dumb"));
  CHECK_FALSE(wants_colours(false, nullptr, "xterm"));
}

TEST_CASE("a pipe shows none") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK_FALSE(rlalgo::run::shows_colours(ends[1]));
  ::close(ends[0]);
  ::close(ends[1]);
}
