#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

#include <rlalgo/assembly/gym.hpp>
#include <rlalgo/config/document.hpp>

using namespace rlalgo;
using data::Json;
using support::lacks;
using support::raised_by;
namespace fs = std::filesystem;

namespace {

std::string row(int k, const std::string& more = "") {
  return R"({"responses_create_params": {"input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Q)" +
         std::to_string(k) + R"("}]}, "answer": ")" + std::to_string(k) + "\"" + more + "}\n";
}

assembly::GymConfig run_in(const fs::path& folder) {
  return {.directory = folder,
          .read_yaml =
              [](const std::string& text) {
                return config::to_json(config::parse_document(text, "the head server's document").root);
              },
          .starts = false};
}

}  // namespace

TEST_CASE("rows of a Gym become prompts, and stay as they are") {
  const support::ScratchDirectory folder;
  std::string rows;
  for (int k = 0; k < 12; ++k) rows += row(k, k % 2 == 0 ? "" : R"(, "metadata": {"level": null})");
  folder.write("data/rows.jsonl", rows);
  folder.write("more.jsonl", row(99, R"(, "prompt": "own")"));
  assembly::GymConfig run = run_in(folder.path());
  run.datasets = {{.path = "data/rows.jsonl", .server_name = "match"},
                  {.path = (folder.path() / "more.jsonl").string()}};
  run.held_out = 0.2;
  const assembly::Prompts prompts = assembly::load_gym_prompts(run);
  REQUIRE(prompts.train.size() == 10);
  REQUIRE(prompts.evaluation.size() == 3);
  std::set<std::string> answers;
  for (const auto* list : {&prompts.train, &prompts.evaluation})
    for (const data::TokenizedPrompt& one : *list) {
      const std::string answer = one.columns.at("answer").get<std::string>();
      answers.insert(answer);
      CHECK(*one.prompt == Json::array({{{"role", "system"}, {"content", "Be brief."}},
                                        {{"role", "user"}, {"content", "Q" + answer}}}));
      CHECK(one.columns.contains("prompt") == (answer == "99"));
      CHECK(one.columns.contains("resources_server_ref") == (answer != "99"));
      if (answer != "99") CHECK(one.columns.contains("metadata") == (std::stoi(answer) % 2 == 1));
    }
  CHECK(answers.size() == 13);

  run.held_out = 0;
  run.datasets = {{.path = "data/rows.jsonl", .max_samples = 5}};
  const auto drawn = [&](std::uint64_t seed) {
    run.seed = seed;
    std::set<std::string> out;
    for (const data::TokenizedPrompt& one : assembly::load_gym_prompts(run).train)
      out.insert(one.columns.at("answer").get<std::string>());
    CHECK(out.size() == 5);
    return out;
  };
  CHECK(drawn(1) == drawn(1));
  CHECK(drawn(1) != drawn(2));
  run.datasets = {{.path = "absent.jsonl"}};
  CHECK(lacks(raised_by([&] { (void)assembly::load_gym_prompts(run); }), {"absent.jsonl", folder.path().string()}) ==
        "");
}

TEST_CASE("the servers that rows need are found, or the row that needs another is named") {
  const support::ScratchDirectory folder;
  folder.write("rows.jsonl", row(1, R"(, "agent_ref": {"type": "responses_api_agents", "name": "agent"})"));
  support::HttpServer match([](const std::string&, const std::string&) { return std::pair{200, std::string("{}")}; });
  const std::string port = match.url().substr(match.url().rfind(':') + 1);
  const std::string yaml =
      "match:\n  resources_servers:\n    match:\n      value: folded over\n        two lines\n      port: " + port +
      "\nagent:\n  responses_api_agents:\n    simple_agent:\n      port: 1\n      resources_server: {name: match}\n";
  support::HttpServer head([&](const std::string&, const std::string&) { return std::pair{200, Json(yaml).dump()}; });
  assembly::GymConfig run = run_in(folder.path());
  run.datasets = {{.path = "rows.jsonl"}};
  run.head_port = std::stoi(head.url().substr(head.url().rfind(':') + 1));
  run.start_seconds = 5;
  const assembly::Prompts prompts = assembly::load_gym_prompts(run);
  const auto gym = assembly::find_gym(run, prompts, true);
  REQUIRE(gym != nullptr);
  CHECK(gym->process == nullptr);
  CHECK(gym->gym->directory().find(remote::GymKind::resources, "match", "").url == "http://127.0.0.1:" + port);
  folder.write("rows.jsonl", row(1, R"(, "resources_server_ref": {"name": "mach"})"));
  const assembly::Prompts wrong = assembly::load_gym_prompts(run);
  CHECK(lacks(raised_by([&] { (void)assembly::find_gym(run, wrong, true); }),
              {"remote.71", "dataset row 0", "did you mean match?"}) == "");
}

TEST_CASE("a head whose text is no YAML is refused") {
  support::HttpServer head([&](const std::string&, const std::string&) {
    return std::pair{200, Json("a: [1").dump()};
  });
  assembly::GymConfig run = run_in("/nowhere");
  run.head_port = std::stoi(head.url().substr(head.url().rfind(':') + 1));
  run.start_seconds = 5;
  CHECK(lacks(raised_by([&] { (void)assembly::find_gym(run, {}, true); }), {"remote.70", "not valid YAML"}) == "");
}
