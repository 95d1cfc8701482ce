#include <rlalgo/run/interrupt.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <rlalgo/os/clock.hpp>
#include <support/catch.hpp>

#include "run/files.hpp"

using rlalgo::os::Interruption;
using rlalgo::run::Interrupt;
using Stage = Interrupt::Stage;

namespace {

// A job in the background of a shell ignores SIGQUIT, one of nohup SIGHUP, and Interrupt leaves ignored what is.
const bool as_in_a_terminal = [] {
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT}) std::signal(signal, SIG_DFL);
  return true;
}();

// What a child wrote to standard error, and how it ended.
struct Ended {
  int status = 0;
  std::string text;
};

Ended ended(const std::function<int()>& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  Ended out;
  out.status = fake::in_child([&] {
    ::close(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    return work();
  });
  ::close(ends[1]);
  char block[1000];
  for (ssize_t n = 0; (n = ::read(ends[0], block, sizeof block)) > 0;) out.text.append(block, static_cast<size_t>(n));
  ::close(ends[0]);
  return out;
}

void (*handler_of(int signal))(int) {
  struct sigaction now = {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

}  // namespace

TEST_CASE("the first signal is a request, and handlers are put back") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    const auto before = handler_of(signal);
    {
      const Interrupt interrupt;
      CHECK_FALSE(Interrupt::requested());
      std::raise(signal);
      CHECK(Interrupt::requested());
      CHECK(Interrupt::exit_code() == 128 + signal);
    }
    CHECK_FALSE(Interrupt::requested());
    CHECK(handler_of(signal) == before);
  }
}

TEST_CASE("the token is asked to stop by the first signal") {
  CHECK_FALSE(Interrupt::token().stop_possible());
  const Interrupt interrupt;
  const std::stop_token token = Interrupt::token();
  CHECK_FALSE(token.stop_requested());
  std::raise(SIGINT);
  for (const rlalgo::os::Deadline deadline(20.0); !token.stop_requested() && !deadline.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(token.stop_requested());
}

TEST_CASE("an inner one is the outer's: a request from before it is still one, and is forgotten with the outermost") {
  {
    const Interrupt outer(Stage::starting);
    CHECK_FALSE(Interruption::deferred());
    std::raise(SIGINT);
    const Interrupt inner;
    CHECK(Interruption::deferred());
    CHECK(Interrupt::requested());
  }
  CHECK_FALSE(Interrupt::requested());
  const Interrupt again;
  CHECK_FALSE(Interrupt::requested());
}

TEST_CASE("the second signal ends the process at once, with the status of the first") {
  const Ended out = ended([] {
    const Interrupt interrupt;
    std::raise(SIGTERM);
    std::raise(SIGINT);
    return 0;
  });
  REQUIRE(WIFEXITED(out.status));
  CHECK(WEXITSTATUS(out.status) == 143);
}

TEST_CASE("a second SIGQUIT does what it does without us") {
  const Ended out = ended([] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    const Interrupt interrupt;
    std::raise(SIGQUIT);
    std::raise(SIGQUIT);
    return 0;
  });
  REQUIRE(WIFSIGNALED(out.status));
  CHECK(WTERMSIG(out.status) == SIGQUIT);
}

TEST_CASE("a start-up that does not look at requests is ended after two seconds, one that does ends itself") {
  const rlalgo::os::Stopwatch watch;
  const Ended stubborn = ended([] {
    const Interrupt interrupt(Stage::starting);
    std::raise(SIGTERM);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
    return 0;
  });
  REQUIRE(WIFEXITED(stubborn.status));
  CHECK(WEXITSTATUS(stubborn.status) == 143);
  CHECK(watch.seconds() >= 1.9);
  CHECK_THAT(stubborn.text, Catch::Contains("stopping; interrupt again") && Catch::Contains("\ninterrupted\n"));
  const Ended polite = ended([] {
    const Interrupt interrupt(Stage::starting);
    std::raise(SIGINT);
    try {
      rlalgo::os::stop_if_interrupted();
    } catch (const rlalgo::os::Interrupted& stop) {
      return stop.exit_code();
    }
    return 1;
  });
  REQUIRE(WIFEXITED(polite.status));
  CHECK(WEXITSTATUS(polite.status) == 130);
}

TEST_CASE("a run that began meanwhile is not cut off") {
  const Ended out = ended([] {
    const Interrupt interrupt(Stage::starting);
    std::raise(SIGTERM);
    const Interrupt loop;
    std::this_thread::sleep_for(std::chrono::milliseconds(2300));
    return 7;
  });
  REQUIRE(WIFEXITED(out.status));
  CHECK(WEXITSTATUS(out.status) == 7);
}

TEST_CASE("with nothing to put in order the first signal ends the process, and says so") {
  const Ended out = ended([] {
    const Interrupt interrupt(Stage::at_once);
    std::raise(SIGINT);
    return 0;
  });
  REQUIRE(WIFEXITED(out.status));
  CHECK(WEXITSTATUS(out.status) == 130);
  CHECK(out.text == "\ninterrupted\n");
}

TEST_CASE("nohup: hangups and quits that are ignored stay ignored") {
  const Ended out = ended([] {
    std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGQUIT, SIG_IGN);
    const Interrupt interrupt;
    std::raise(SIGHUP);
    std::raise(SIGQUIT);
    return Interrupt::requested() ? 1 : 0;
  });
  REQUIRE(WIFEXITED(out.status));
  CHECK(WEXITSTATUS(out.status) == 0);
  CHECK(out.text.empty());
}

TEST_CASE("the first signal says on standard error what it does, and leaves errno alone") {
  const Ended out = ended([] {
    const Interrupt interrupt;
    errno = 42;
    std::raise(SIGINT);
    return errno == 42 ? 0 : 2;
  });
  REQUIRE(WIFEXITED(out.status));
  CHECK(WEXITSTATUS(out.status) == 0);
  CHECK_THAT(out.text, Catch::Contains("stopping after this step; interrupt again"));
}

TEST_CASE("only a run that is under way minds no readers") {
  const auto before = handler_of(SIGPIPE);
  const Interrupt outer(Stage::at_once);
  CHECK(handler_of(SIGPIPE) == before);
  {
    const Interrupt inner;
    CHECK(handler_of(SIGPIPE) == SIG_IGN);
  }
  CHECK(handler_of(SIGPIPE) == before);
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
