#include <rlalgo/sampler/rollouts_file.hpp>

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using data::Json;

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a document of a step") {
  auto document = std::make_shared<data::Document>();
  document->ids = {5, 6, 7, 8};
  document->loss_mask = {1, 0, 1, 1};
  const sampler::StridedDocument row{.document = document,
                                     .anchor = 2,
                                     .blocks = {{.start = 2,
                                                 .samples = {{1, 2}, {3, 4}},
                                                 .alignment = {1.5, .5},
                                                 .diversity = {.25, .25},
                                                 .reward = {1.25, .25},
                                                 .advantage = {1, -1}}}};
  CHECK(
      sampler::rollout_record(3, row, 8) ==
      Json::parse(
          R"({"step": 3, "mode": "strided", "document_ids": [5, 6, 7, 8], "prompt_length": null, "anchor": 2, "stride": 8, "blocks": [{"start": 2, "samples": [[1, 2], [3, 4]], "alignment": [1.5, 0.5], "diversity": [0.25, 0.25], "reward": [1.25, 0.25], "advantage": [1.0, -1.0]}], "loss_mask": [1, 0, 1, 1]})"));
  document->prompt_length = 0;
  const sampler::StridedDocument bare{.document = document, .anchor = 8};
  CHECK(sampler::rollout_record(3, bare, 8)["prompt_length"] == 0);
  CHECK(sampler::rollout_record(3, bare, 8)["blocks"] == Json::array());
}

TEST_CASE("prompts of a step, their samples in turn") {
  std::vector<data::Episode> episodes(4);
  const data::SharedJson one = Json("a"), two = Json("a");  // two prompts of the same words
  for (std::size_t i = 0; i < 4; ++i) {
    episodes[i].prompt = i < 2 ? one : two;
    episodes[i].first().prompt_ids = {1, 2};
    episodes[i].first().completion_ids = {static_cast<data::TokenId>(i), 0};
    episodes[i].rewards = {1.0, .5};
    episodes[i].advantage = static_cast<double>(i);
  }
  std::vector<data::EpisodeRow> rows;
  for (data::Episode& episode : episodes) rows.emplace_back(episode, episode.first());
  std::vector<const data::EpisodeRow*> views;
  for (const data::EpisodeRow& row : rows) views.push_back(&row);
  const auto lines =
      sampler::rollout_records(1, views, 2.0, 3.0, [](const data::Episode&) { return std::vector<data::TokenId>{9}; });
  REQUIRE(lines.size() == 2);
  CHECK(
      lines[1] ==
      Json::parse(
          R"({"step": 1, "mode": "structured", "prompt_ids": [1, 2], "ground_truth_ids": [9], "samples": [{"ids": [2, 0], "alignment": 1.0, "diversity": 0.5, "reward": 0.5, "advantage": 2.0}, {"ids": [3, 0], "alignment": 1.0, "diversity": 0.5, "reward": 0.5, "advantage": 3.0}]})"));
}

TEST_CASE("a resumed run writes the file of one that was never interrupted") {
  const support::ScratchDirectory scratch;
  const auto out = scratch.path() / "new folder";
  const auto line = [](int step) { return std::vector<Json>{{{"step", step}, {"x", 1}}, {{"step", step}, {"x", 2}}}; };
  {
    sampler::RolloutsFile file(out);
    for (int step = 1; step <= 4; ++step) file.write(step, line(step));
  }
  const std::string whole = read(out / sampler::RolloutsFile::name);
  std::ofstream(out / sampler::RolloutsFile::name, std::ios::app)
      << "{\"step\": \"1\"}\n{\"step\": null}\n[1]\n{\"step\": 5, \"cut";
  sampler::RolloutsFile resumed(out);
  for (int step = 3; step <= 4; ++step) resumed.write(step, line(step));
  CHECK(read(out / sampler::RolloutsFile::name) == whole);
  sampler::RolloutsFile fresh(out);
  fresh.write(1, line(1));
  CHECK(read(out / sampler::RolloutsFile::name) == whole.substr(0, whole.find("{\"step\":2")));
  std::filesystem::remove(out / sampler::RolloutsFile::name);
  REQUIRE(::mkfifo((out / sampler::RolloutsFile::name).c_str(), 0600) == 0);  // nobody writes to it
  sampler::RolloutsFile nothing(out);
  CHECK_THROWS_WITH(nothing.write(1, line(1)), Catch::Contains("[rlalgo.os.1]") && Catch::Contains("a named pipe"));
}

TEST_CASE("a file that cannot be written is an error") {
  const support::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.path() / sampler::RolloutsFile::name);
  sampler::RolloutsFile file(scratch.path());
  CHECK_THROWS_WITH(file.write(1, {}), Catch::Contains("[rlalgo.os.1]"));
}
