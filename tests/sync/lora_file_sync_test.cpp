#include <rlalgo/sync/lora_file_sync.hpp>

#include <filesystem>
#include <fstream>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using Json = sync::LoraFileSync::Json;
namespace fs = std::filesystem;

namespace {

http::ClientConfig quick(const std::string& url) {
  return {.base_url = url, .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}};
}

// Writes a file and fails when somebody could already see it.
sync::LoraFileSync::Save saver(int& saved) {
  return [&saved](const fs::path& directory) {
    CHECK(directory.extension() == ".writing");
    std::ofstream(directory / "adapter_model.safetensors") << "weights " << ++saved;
  };
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("an adapter is complete before the server hears of it, and outlives its version by one") {
  const support::ScratchDirectory folder;
  std::vector<std::string> loaded;
  support::HttpServer server([&](const std::string& path, const std::string& body) {
    if (path == "/v1/load_lora_adapter") return std::pair{404, std::string()};
    if (path == "/set_lora_adapter/") {
      const fs::path directory = Json::parse(body)["lora_path"].get<std::string>();
      loaded.push_back(directory.filename().string() + ": " + text_of(directory / "adapter_model.safetensors"));
    }
    return std::pair{200, std::string("{}")};
  });
  int saved = 0;
  sync::LoraFileSync policy(quick(server.url()), folder.path() / "sync", saver(saved));
  const auto version = policy.version_source();
  CHECK(version() == -1);
  CHECK(server.seen().empty());         // asking sends nothing
  CHECK(policy.publish(3).bytes == 9);  // "weights 1"
  CHECK(version() == 3);
  CHECK(policy.publish(3).status == sync::Published::Status::unchanged);
  CHECK(loaded == std::vector<std::string>{"v3: weights 1"});
  std::vector<std::string> paths;
  for (const auto& [path, body] : server.seen()) paths.push_back(path);
  REQUIRE(paths.size() > 3);
  CHECK(std::vector<std::string>(paths.end() - 3, paths.end()) ==
        std::vector<std::string>{"/v1/load_lora_adapter", "/set_lora_adapter/", "/reset_prefix_cache/"});
  const auto seen = server.seen();
  const Json asked = Json::parse(seen[seen.size() - 3].second), set = Json::parse(seen[seen.size() - 2].second);
  CHECK(asked["load_inplace"] == true);
  CHECK(asked["lora_name"] == "axolotl-lora");
  CHECK(set["lora_name"] == "active_lora");
  CHECK(set["lora_path"] == fs::absolute(folder.path() / "sync" / "v3").string());
  policy.publish(4);
  CHECK(version() == 4);
  CHECK(fs::exists(folder.path() / "sync" / "v3"));
  policy.publish(5);
  CHECK(version() == 5);
  CHECK_FALSE(fs::exists(folder.path() / "sync" / "v3"));
  CHECK(fs::exists(folder.path() / "sync" / "v4"));
  CHECK(fs::exists(folder.path() / "sync" / "v5"));
  std::vector<std::int64_t> ids;
  for (const auto& [path, body] : server.seen())
    if (path == "/set_lora_adapter/") ids.push_back(Json::parse(body)["lora_int_id"].get<std::int64_t>());
  CHECK(ids == std::vector<std::int64_t>{ids[0], ids[0] + 1, ids[0] + 2});
  CHECK(ids[0] > 0);
}

TEST_CASE("a resumed run writes over what an earlier one left") {
  const support::ScratchDirectory folder;
  folder.write("sync/v2/adapter_model.safetensors", "old");
  folder.write("sync/v2/stale.txt", "old");
  folder.write("sync/v2.writing/half.txt", "old");
  support::HttpServer server([](const std::string&, const std::string&) { return std::pair{200, std::string()}; });
  int saved = 0;
  sync::LoraFileSync policy(quick(server.url()), folder.path() / "sync", saver(saved));
  policy.publish(2);
  CHECK(policy.version_source()() == 2);
  CHECK(text_of(folder.path() / "sync/v2/adapter_model.safetensors") == "weights 1");
  CHECK_FALSE(fs::exists(folder.path() / "sync/v2/stale.txt"));
  CHECK_FALSE(fs::exists(folder.path() / "sync/v2/half.txt"));
}

TEST_CASE("stock vLLM answers in plain text and has no prefix endpoint; a server of neither kind is an error") {
  const support::ScratchDirectory folder;
  int saved = 0;
  bool stock = true;
  int prefix = 404;
  support::HttpServer server([&](const std::string& path, const std::string&) {
    if (path == "/health/") return std::pair{200, std::string()};
    if (path == "/v1/load_lora_adapter" && stock)
      return std::pair{200, std::string("Success: LoRA adapter 'axolotl-lora' added successfully.")};
    return std::pair{path == "/reset_prefix_cache/" ? prefix : 404, std::string()};
  });
  sync::LoraFileSync policy(quick(server.url()), folder.path(), saver(saved));
  policy.publish(1);
  CHECK(policy.version_source()() == 1);
  CHECK(server.seen().back().first == "/reset_prefix_cache/");
  prefix = 403;
  CHECK_THROWS_WITH(policy.publish(2),
                    Catch::Matchers::Contains("[rlalgo.sync.2]") && Catch::Matchers::Contains("prefix"));
  stock = false;
  CHECK_THROWS_WITH(policy.publish(2), Catch::Matchers::Contains("[rlalgo.sync.2]") &&
                                           Catch::Matchers::Contains("HTTP 404") &&
                                           Catch::Matchers::Contains(server.url()));
}

TEST_CASE("a disk that refuses is an error with its path") {
  const support::ScratchDirectory folder;
  folder.write("file", "no directory");
  support::HttpServer server([](const std::string&, const std::string&) { return std::pair{200, std::string()}; });
  int saved = 0;
  sync::LoraFileSync policy(quick(server.url()), folder.path() / "file", saver(saved));
  CHECK_THROWS_WITH(policy.publish(1), Catch::Matchers::Contains("[rlalgo.os.1]"));
}

TEST_CASE("rlalgo's own server is told the version that its completions then carry") {
  const support::ScratchDirectory folder;
  std::string name;
  support::HttpServer server([&](const std::string& path, const std::string& body) {
    if (path == "/update_weight_version") name = Json::parse(body)["new_version"].get<std::string>();
    return std::pair{200, std::string(path == "/version" ? R"({"version": "1", "server": "rlalgo"})" : "{}")};
  });
  int saved = 0;
  sync::LoraFileSync policy(quick(server.url()), folder.path(), saver(saved));
  policy.publish(12);
  CHECK(name == "v12");
}
