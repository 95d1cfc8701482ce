#include <rlalgo/run/interrupt.hpp>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include <support/catch.hpp>

#include "run/files.hpp"

using rlalgo::run::Interrupt;

TEST_CASE("the first signal is a request, and handlers are put back") {
  struct sigaction before = {};
  ::sigaction(SIGTERM, nullptr, &before);
  {
    const Interrupt interrupt;
    CHECK_FALSE(Interrupt::requested());
    std::raise(SIGTERM);
    CHECK(Interrupt::requested());
  }
  {
    const Interrupt again;
    CHECK_FALSE(Interrupt::requested());
  }
  struct sigaction after = {};
  ::sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
}

TEST_CASE("the second signal ends the process at once with status 130") {
  const int status = fake::in_child([] {
    const Interrupt interrupt;
    std::raise(SIGINT);
    std::raise(SIGINT);
    return 0;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
}

TEST_CASE("the first signal says on standard error what it does, and leaves errno alone") {
  const int status = fake::in_child([] {
    const Interrupt interrupt;
    int ends[2];
    if (::pipe(ends) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) return 1;
    errno = 42;
    std::raise(SIGINT);
    if (errno != 42) return 2;
    char text[200] = {};
    return ::read(ends[0], text, sizeof text - 1) > 0 && std::string(text).find("again") != std::string::npos ? 0 : 3;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a pipe whose reader went away does not end the process") {
  const int status = fake::in_child([] {
    const Interrupt interrupt;
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 2;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
