#include <rlalgo/core/passive_waiting.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

// What the restarted program is: this one, with this test alone.
TEST_CASE("the policy of a restarted program", "[.restarted]") {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  const char* other = std::getenv("OTHER");
  const std::string text = std::string(policy != nullptr ? policy : "none") + " " + (other != nullptr ? other : "none");
  REQUIRE(::write(9, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

namespace {

// What the restarted program says; "went on" when wait_passively() returned.
std::string said_with(std::vector<std::string> environment) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], 9);
    std::vector<std::string> arguments = {"test", "[.restarted]", "-o", "/dev/null"};
    std::vector<char*> argv, variables;
    for (std::string& one : arguments) argv.push_back(one.data());
    for (std::string& one : environment) variables.push_back(one.data());
    argv.push_back(nullptr);
    variables.push_back(nullptr);
    core::wait_passively(static_cast<int>(arguments.size()), argv.data(), variables.data());
    (void)!::write(9, "went on", 7);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string out;
  char chunk[64];
  for (ssize_t count = 0; (count = ::read(ends[0], chunk, sizeof chunk)) > 0;)
    out.append(chunk, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return out;
}

}  // namespace

TEST_CASE("a program starts again with passive waits, once, and keeps its environment") {
  CHECK(said_with({"OTHER=one", "PATH=/bin"}) == "passive one");
  CHECK(said_with({}) == "passive none");
  CHECK(said_with({"OMP_WAIT_POLICY_OF_MINE=x", "OTHER=two"}) == "passive two");
}

TEST_CASE("what the user has said of waiting stays") {
  for (const char* own : {"OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY=", "GOMP_SPINCOUNT=1000"})
    CHECK(said_with({"OTHER=one", own}) == "went on");
  std::vector<std::string> many(9000, "A=b");
  CHECK(said_with(many) == "went on");
}
