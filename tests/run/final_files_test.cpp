#include <rlalgo/run/final_files.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <rlalgo/os/atomic_file.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

namespace fs = std::filesystem;

std::set<std::string> names(const fs::path& directory) {
  std::set<std::string> out;
  for (const auto& one : fs::directory_iterator(directory)) out.insert(one.path().filename().string());
  return out;
}

std::string text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

auto files(const std::vector<std::string>& list) {
  return [list](const fs::path& to) {
    for (const std::string& name : list)
      os::write_file(to / name, name == "README.md" ? "---\ntags:\n- generated_from_trainer\n---\n" : "new");
  };
}

}  // namespace

TEST_CASE("files of an earlier model that would be read as the new one's are gone, others stay") {
  const rlalgo::support::ScratchDirectory scratch;
  const fs::path out = scratch.path() / "a/b";
  using Set = std::set<std::string>;
  CHECK_FALSE(run::publish_files(out, files({"config.json", "generation_config.json", "model.safetensors",
                                             "tokenizer.json", "chat_template.jinja", "README.md"})));
  os::write_file(out / "metrics.jsonl", "mine");
  run::publish_files(out, files({"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md"}));
  CHECK(names(out) ==
        Set{"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md", "metrics.jsonl"});
  run::publish_files(out, files({"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                 "model.safetensors.index.json"}));
  CHECK(names(out) == Set{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json", "README.md", "metrics.jsonl"});
  // A trainer that saves weights alone leaves what describes them.
  run::publish_files(out, files({"model.safetensors"}));
  CHECK(names(out) == Set{"config.json", "model.safetensors", "tokenizer.json", "README.md", "metrics.jsonl"});
}

TEST_CASE("a folder of the model's takes the place of an earlier one") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto with = [](const std::string& name) {
    return [name](const fs::path& to) {
      fs::create_directory(to / "additional_chat_templates");
      os::write_file(to / "additional_chat_templates" / name, "new");
    };
  };
  run::publish_files(scratch.path(), with("a.jinja"));
  run::publish_files(scratch.path(), with("b.jinja"));
  CHECK(names(scratch.path() / "additional_chat_templates") == std::set<std::string>{"b.jinja"});
}

TEST_CASE("a README.md that is no generated card is kept") {
  const rlalgo::support::ScratchDirectory scratch;
  scratch.write("README.md", "# My project\n");
  CHECK(run::publish_files(scratch.path(), files({"config.json", "README.md"})));
  CHECK(text(scratch.path() / "README.md") == "# My project\n");
  scratch.write("README.md", "---\nlibrary_name: peft\n---\n");
  CHECK_FALSE(run::publish_files(scratch.path(), files({"config.json", "README.md"})));
  CHECK(text(scratch.path() / "README.md").find("generated_from_trainer") != std::string::npos);
  CHECK(names(scratch.path()) == std::set<std::string>{"README.md", "config.json"});
}

TEST_CASE("what fails leaves nothing") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto broken = [](const fs::path& to) {
    os::write_file(to / "config.json", "half");
    throw std::runtime_error("disk");
  };
  CHECK_THROWS(run::publish_files(scratch.path() / "new/er", broken));
  CHECK(fs::is_empty(scratch.path()));
  scratch.write("config.json", "old");
  fs::create_directory(scratch.path() / "model.safetensors");
  CHECK_THROWS(run::publish_files(scratch.path(), broken));
  CHECK(lacks(raised_by([&] {
                run::publish_files(scratch.path(), files({"config.json", "model.safetensors"}));
              }),
              {"os.1", "model.safetensors"}) == "");
  CHECK(text(scratch.path() / "config.json") == "old");
  CHECK(names(scratch.path()) == std::set<std::string>{"config.json", "model.safetensors"});
}
