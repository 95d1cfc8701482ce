#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/hub_download.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScopedVariable;
using rlalgo::support::ScratchDirectory;

// tests/cli/fetch_test.py has a Hub with redirects, faults and TLS, and huggingface_hub's layout.
namespace {

constexpr const char* commit = "0123456789012345678901234567890123456789";

// A Hub of one model, whose answers are given by path.
struct SmallHub {
  std::map<std::string, std::string> answers = {
      {"/api/models/team/m/revision/main", R"({"sha":"0123456789012345678901234567890123456789"})"},
      {"/api/models/team/m/tree/0123456789012345678901234567890123456789?recursive=True&expand=False",
       R"([{"type":"file","path":"config.json","size":2,"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b"}])"},
      {"/team/m/resolve/0123456789012345678901234567890123456789/config.json", "{}"}};
  support::HttpServer server{[this](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    const auto found = answers.find(path);
    return found == answers.end() ? std::pair{404, std::string("{}")} : std::pair{200, found->second};
  }};
  std::string& tree() {
    return answers["/api/models/team/m/tree/0123456789012345678901234567890123456789?recursive=True&expand=False"];
  }
};

remote::HubDownload of(const SmallHub& hub, const ScratchDirectory& scratch) {
  return {.id = "team/m",
          .kind = data::HubKind::models,
          .endpoint = hub.server.url(),
          .token = "t",
          .cache = scratch.path() / "hub",
          .attempts = 2,
          .first_wait = 0.01};
}

}  // namespace

TEST_CASE("a model is fetched into the cache, and found there") {
  const ScratchDirectory scratch;
  const ScopedVariable online("HF_HUB_OFFLINE", ""), none("no_proxy", "*"),
      cache("HF_HUB_CACHE", (scratch.path() / "hub").string());
  const SmallHub hub;
  CHECK_FALSE(data::find_in_hub_cache(data::HubKind::models, "team/m"));
  std::vector<remote::HubProgress> told;
  remote::HubDownload download = of(hub, scratch);
  download.progress = [&](const remote::HubProgress& p) { told.push_back(p); };
  const remote::HubSnapshot snapshot = remote::fetch_snapshot(download);
  CHECK(snapshot.commit == commit);
  CHECK(snapshot.files == 1);
  CHECK(snapshot.fetched == 1);
  CHECK(snapshot.bytes == 2);
  REQUIRE_FALSE(told.empty());
  CHECK(told.back().bytes == 2);
  CHECK(told.back().file_done);
  CHECK(data::find_in_hub_cache(data::HubKind::models, "team/m") == snapshot.directory);
  CHECK(os::read_regular_file(snapshot.directory / "config.json", 100).text == "{}");
  CHECK(std::filesystem::read_symlink(snapshot.directory / "config.json") ==
        "../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b");
  const std::size_t asked = hub.server.seen().size();
  CHECK(remote::fetch_snapshot(download).fetched == 0);
  CHECK(hub.server.seen().size() == asked + 2);  // commit and list
}

TEST_CASE("contents that are not what was announced, and answers that are none") {
  const ScratchDirectory scratch;
  const ScopedVariable online("HF_HUB_OFFLINE", ""), none("no_proxy", "*");
  SmallHub hub;
  const auto raised = [&] { return raised_by([&] { (void)remote::fetch_snapshot(of(hub, scratch)); }); };
  hub.answers["/team/m/resolve/0123456789012345678901234567890123456789/config.json"] = "[]";
  CHECK(lacks(raised(), {"remote.88: ", "config.json", "9e26dfeeb6e641a33dae4961196235bdb965b21b"}) == "");
  CHECK(!os::exists(scratch.path() / "hub/models--team--m/snapshots"));
  hub.answers["/team/m/resolve/0123456789012345678901234567890123456789/config.json"] = "{";
  CHECK(lacks(raised(), {"remote.87: ", "1 of 2 bytes"}) == "");
  for (
      const auto& [tree, what] : std::map<std::string, std::string>{
          {"{}", "no list"},
          {"[", "no JSON"},
          {R"([{"type":"file","path":"../x","size":1,"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b"}])",
           "leaves its folder"},
          {R"([{"type":"file","path":"/x","size":1,"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b"}])",
           "leaves its folder"},
          {R"([{"type":"file","path":"x","size":1,"oid":"../../../../x"}])", "without its name"},
          {R"([{"type":"file","path":"x","size":1,"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b","lfs":{"oid":"zz"}}])",
           "without its SHA-256"}}) {
    hub.tree() = tree;
    CHECK(lacks(raised(), {"remote.90: ", what}) == "");
  }
  hub.tree() = "[]";
  CHECK(lacks(raised(), {"remote.92: "}) == "");
  hub.answers["/api/models/team/m/revision/main"] = R"({"sha":"main"})";
  CHECK(lacks(raised(), {"remote.90: ", "no commit"}) == "");
}

TEST_CASE("what is refused before anything is asked") {
  const ScratchDirectory scratch;
  const SmallHub hub;
  const auto raised = [&](const std::string& id, const std::string& revision) {
    remote::HubDownload download = of(hub, scratch);
    download.id = id;
    download.revision = revision;
    return raised_by([&] { (void)remote::fetch_snapshot(download); });
  };
  {
    const ScopedVariable offline("HF_HUB_OFFLINE", "1");
    CHECK(lacks(raised("team/m", "main"), {"remote.91: ", "HF_HUB_OFFLINE"}) == "");
  }
  const ScopedVariable online("HF_HUB_OFFLINE", "0");
  CHECK(lacks(raised("a/b/c", "main"), {"remote.91: ", "a/b/c"}) == "");
  CHECK(lacks(raised("./x", "main"), {"remote.91: "}) == "");
  CHECK(lacks(raised("team/m", "../x"), {"remote.91: ", "../x"}) == "");
  CHECK(lacks(raised("team/m", ""), {"remote.91: "}) == "");
  CHECK(hub.server.seen().empty());
}

TEST_CASE("the token: two variables, then a file") {
  const ScratchDirectory scratch;
  const std::string home = scratch.path().string();
  const ScopedVariable first("HF_TOKEN", ""), second("HUGGING_FACE_HUB_TOKEN", ""), path("HF_TOKEN_PATH", ""),
      folder("HF_HOME", home);
  CHECK(remote::hub_token().empty());
  scratch.write("token", "hf_file\n");
  CHECK(remote::hub_token() == "hf_file");
  const ScopedVariable other("HF_TOKEN_PATH", scratch.write("other", " hf_other "));
  CHECK(remote::hub_token() == "hf_other");
  const ScopedVariable old("HUGGING_FACE_HUB_TOKEN", "hf_old");
  CHECK(remote::hub_token() == "hf_old");
  const ScopedVariable set("HF_TOKEN", "\nhf_set\n");
  CHECK(remote::hub_token() == "hf_set");
}
