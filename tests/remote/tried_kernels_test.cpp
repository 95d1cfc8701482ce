#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/tried_kernels.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using remote::TriedKernels;

namespace {

const std::vector<std::string> names = {"one", "two", "three"};

// A process that answers as its script says: the words of a case of `sh`, by what is asked.
std::vector<std::string> answering(const std::string& cases) {
  return {"sh", "-c",
          "while read -r asked <&3; do case $asked in\n" + cases +
              "\n*) echo '{\"agrees\": true, \"found\": \"well\"}' >&3 ;;\nesac; done"};
}

using Said = std::vector<std::string>;

TriedKernels tried_by(const std::string& cases, Said* said = nullptr, remote::KernelTrialLimits limits = {}) {
  return remote::try_kernels(answering(cases), names, limits,
                             [&](std::string_view name, bool agrees, std::string_view found) {
                               if (said != nullptr)
                                 said->push_back(std::string(name) + (agrees ? ": " : " not: ") + std::string(found));
                             });
}

}  // namespace

TEST_CASE("kernels that agree are used, one by one and together") {
  Said said;
  CHECK(tried_by("none) ;;", &said) == TriedKernels{names, {}, false});
  CHECK(said == Said{"one: well", "two: well", "three: well", "together: well"});
}

TEST_CASE("a kernel that does not agree, ends its process or does not answer is not used, and hides no other") {
  for (const auto& [how, why] : std::map<std::string, std::string>{
           {"two) echo '{\"agrees\": false, \"found\": \"far off\"}' >&3 ;;", "far off"},
           {"two) echo '{\"agrees\": false, \"found\": \"a launch\", \"ends\": true}' >&3; exit 0 ;;", "a launch"},
           {"two) kill -SEGV $$ ;;", "signal 11"},
           {"two) sleep 60 ;;", "no answer within 1 seconds"},
           {"two) echo nonsense >&3 ;;", "another form"},
           {"two) echo '{\"agrees\": \"yes\", \"found\": \"\"}' >&3 ;;", "another form"}}) {
    CAPTURE(how);
    const TriedKernels found = tried_by(how, nullptr, {.begin_seconds = 10.0, .seconds = 1.0});
    CHECK(found.used == std::vector<std::string>{"one", "three"});
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused.at("two").find(why) != std::string::npos);
  }
}

TEST_CASE("where those that agree do not agree together, none is used") {
  const TriedKernels found = tried_by("one,two,three) echo '{\"agrees\": false, \"found\": \"off\"}' >&3 ;;");
  CHECK(found.used.empty());
  CHECK(found.refused == std::map<std::string, std::string>{{"together", "off"}});
}

TEST_CASE("what says nothing of a kernel ends the trials: none is used, and it is not kept") {
  const rlalgo::support::ScratchDirectory dir;
  const std::filesystem::path file = dir.path() / "kernels.json";
  for (const auto& [command, name, why] : std::vector<std::array<std::string, 3>>{
           {"/no/such/program", "one", "could not be started"},
           {"two) exit 3 ;;", "two", "exit status 3"},
           {"two) echo '{\"agrees\": false, \"found\": \"full\", \"for_now\": true, \"ends\": true}' >&3 ;;", "two",
            "full"}}) {
    CAPTURE(command);
    const TriedKernels found = name == "one" ? remote::try_kernels({command}, names) : tried_by(command);
    CHECK(found.used.empty());
    CHECK(found.for_now);
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused.at(name).find(why) != std::string::npos);
    remote::remember_kernels(file, "a", found);
    CHECK_FALSE(std::filesystem::exists(file));
  }
}

TEST_CASE("what was found is kept by card, the newest sixteen") {
  const rlalgo::support::ScratchDirectory dir;
  const std::filesystem::path file = dir.path() / "cache/rlalgo/kernels.json";
  CHECK_FALSE(remote::recall_kernels(file, "a"));
  const TriedKernels first{{"one"}, {{"two", "why"}}}, second{names, {}};
  remote::remember_kernels(file, "a", first);
  remote::remember_kernels(file, "b", second);
  CHECK(remote::recall_kernels(file, "a") == first);
  CHECK(remote::recall_kernels(file, "b") == second);
  CHECK_FALSE(remote::recall_kernels(file, "c"));
  remote::remember_kernels(file, "a", second);
  CHECK(remote::recall_kernels(file, "a") == second);
  for (int i = 0; i < 15; ++i) remote::remember_kernels(file, std::to_string(i), first);
  CHECK(remote::recall_kernels(file, "a"));
  CHECK_FALSE(remote::recall_kernels(file, "b"));
}

TEST_CASE("a record that cannot be read is as none, and is replaced") {
  const rlalgo::support::ScratchDirectory dir;
  const std::filesystem::path file = dir.path() / "kernels.json";
  for (const std::string text :
       {"", "{", "[]", "{\"format\": 2, \"cards\": []}", "{\"format\": 1, \"cards\": [3, {\"of\": 4}]}",
        "{\"format\": 1, \"cards\": [{\"of\": \"a\", \"used\": 3, \"refused\": {}}]}",
        "{\"format\": 1, \"cards\": [{\"of\": \"a\", \"used\": [\"one\"]}]}"}) {
    CAPTURE(text);
    std::ofstream(file) << text;
    CHECK_FALSE(remote::recall_kernels(file, "a"));
    remote::remember_kernels(file, "a", {{"one"}, {}});
    CHECK(remote::recall_kernels(file, "a") == TriedKernels{{"one"}, {}});
  }
}
