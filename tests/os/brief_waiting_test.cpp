#include <rlalgo/os/brief_waiting.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

// What the restarted program is: this one, with this test alone.
TEST_CASE("how long threads of a restarted program spin", "[.restarted]") {
  const char* count = std::getenv("GOMP_SPINCOUNT");
  const char* other = std::getenv("OTHER");
  const std::string text = std::string(count != nullptr ? count : "none") + " " + (other != nullptr ? other : "none");
  REQUIRE(::write(9, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

namespace {

// What the restarted program says; "went on" when wait_briefly() returned.
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
    os::wait_briefly(static_cast<int>(arguments.size()), argv.data(), variables.data());
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

TEST_CASE("a program starts again with brief waits, once, and keeps its environment") {
  CHECK(said_with({"OTHER=one", "PATH=/bin"}) == "5000 one");
  CHECK(said_with({}) == "5000 none");
  CHECK(said_with({"OMP_WAIT_POLICY_OF_MINE=x", "OTHER=two"}) == "5000 two");
}

TEST_CASE("what the user has said of waiting stays") {
  for (const char* own : {"OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY=", "GOMP_SPINCOUNT=1000"})
    CHECK(said_with({"OTHER=one", own}) == "went on");
  std::vector<std::string> many(9000, "A=b");
  CHECK(said_with(many) == "went on");
}
