#include <map>
#include <string>
#include <vector>

#include <support/scratch.hpp>

#include <rlalgo/data/dataset_folder.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {

// The card's YAML is given as JSON, which is YAML.
std::string same(const std::string& yaml, const std::string&) { return yaml; }

// Its splits and their files: "test: b.jsonl; train: a.jsonl x/c.jsonl".
std::string shown(const std::filesystem::path& folder, const std::string& name = {},
                  std::vector<std::string>* told = nullptr) {
  DatasetSource source;
  source.name = name;
  source.yaml_to_json = &same;
  source.tell = [&](const std::string& line) {
    if (told != nullptr) told->push_back(line);
  };
  std::string out;
  for (const auto& [split, files] : files_of_folder(folder, source)) {
    out += (out.empty() ? "" : "; ") + split + ":";
    for (const auto& file : files) out += " " + file.lexically_relative(folder).string();
  }
  return out;
}

std::string shown_files(const std::vector<std::string>& files) {
  const ScratchDirectory scratch;
  for (const std::string& file : files) scratch.write(file, "{}\n");
  return shown(scratch.path());
}

}  // namespace

TEST_CASE("splits by names of files and folders, as datasets finds them") {
  CHECK(shown_files({"a.jsonl", "b.jsonl"}) == "train: a.jsonl b.jsonl");
  CHECK(shown_files({"train.jsonl", "test.jsonl", "extra.jsonl"}) == "test: test.jsonl; train: train.jsonl");
  CHECK(shown_files({"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                     "data/odd_one-00000-of-00001-abc.parquet", "data/more.parquet", "test.parquet"}) ==
        "odd_one: data/odd_one-00000-of-00001-abc.parquet; train: data/train-00000-of-00002.parquet "
        "data/train-00001-of-00002.parquet");
  CHECK(shown_files({"main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet"}) ==
        "test: main/test-00000-of-00001.parquet; train: main/train-00000-of-00001.parquet");
  CHECK(shown_files({"train/a.jsonl", "dev/b.jsonl"}) == "train: train/a.jsonl; validation: dev/b.jsonl");
  CHECK(shown_files({"validation/train.jsonl", "x.jsonl"}) == "validation: validation/train.jsonl");  // folders first
  CHECK(shown_files({"train-test.jsonl", "x.jsonl"}) == "test: train-test.jsonl; train: train-test.jsonl");
  CHECK(shown_files({"mytrain.jsonl", "x.jsonl"}) == "train: mytrain.jsonl x.jsonl");
  CHECK(shown_files({"my_train_file.jsonl", "x.jsonl"}) == "train: my_train_file.jsonl");
  CHECK(shown_files({"train2/a.jsonl", "b.jsonl"}) == "train: train2/a.jsonl");
  CHECK(shown_files({"eval.jsonl", "x.jsonl"}) == "test: eval.jsonl");
  CHECK(shown_files({"__old/a.jsonl", ".hidden/b.jsonl", "c.jsonl", "config.json", "dataset_infos.json"}) ==
        "train: c.jsonl");
  CHECK(shown_files({"a.jsonl.zst", "b.jsonl.gz"}) == "train: a.jsonl.zst b.jsonl.gz");
  CHECK(lacks(raised_by([] { (void)shown_files({"a.bin"}); }), {"data.1: ", "no dataset file"}) == "");
}

TEST_CASE("Parquet beside texts: the kind that there is more of, and the others are told") {
  const ScratchDirectory scratch;
  for (const char* file : {"data/x.parquet", "y.parquet", "notes.json"}) scratch.write(file, "");
  std::vector<std::string> told;
  CHECK(shown(scratch.path(), "", &told) == "train: data/x.parquet y.parquet");
  REQUIRE(told.size() == 1);
  CHECK(lacks(told[0], {"parquet files are read", "1 others", "notes.json"}) == "");
  scratch.write("a.json", "");
  CHECK(shown(scratch.path()) == "train: data/x.parquet y.parquet");  // a draw
  scratch.write("b.json", "");
  CHECK(shown(scratch.path()) == "train: a.json b.json notes.json");
}

TEST_CASE("configurations of the card") {
  const ScratchDirectory scratch;
  for (const char* file :
       {"main/train-0.parquet", "main/test-0.parquet", "socratic/train-0.parquet", "other/a.parquet"})
    scratch.write(file, "");
  const auto card = [&](const std::string& configs) {
    scratch.write("README.md", "---\n{\"configs\": " + configs + "}\n---\n# A dataset\n---\nconfigs: 1\n---\n");
  };
  const std::string both =
      R"([{"config_name":"main","data_files":[{"split":"train","path":"main/train-*"},{"split":"held","path":["main/test-*"]}]},)"
      R"({"config_name":"socratic","data_files":"socratic/*"MORE}])";
  const auto with = [&](const std::string& more) {
    std::string text = both;
    return text.replace(text.find("MORE"), 4, more);
  };
  card(with(""));
  CHECK(shown(scratch.path(), "main") == "held: main/test-0.parquet; train: main/train-0.parquet");
  CHECK(shown(scratch.path(), "socratic") == "train: socratic/train-0.parquet");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }),
              {"data.43: ", "several configurations", "main, socratic", "datasets[].name"}) == "");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path(), "mein"); }), {"data.43: ", "mein", "did you mean main?"}) ==
        "");
  card(with(R"(,"default":true)"));
  CHECK(shown(scratch.path()) == "train: socratic/train-0.parquet");
  card(R"([{"config_name":"one","data_dir":"main"}])");
  CHECK(shown(scratch.path()) == "test: main/test-0.parquet; train: main/train-0.parquet");
  card(R"([{"config_name":"one","data_files":["other/a.parquet","socratic/*"],"sep":"|"}])");
  std::vector<std::string> told;
  CHECK(shown(scratch.path(), "one", &told) == "train: other/a.parquet socratic/train-0.parquet");
  REQUIRE(told.size() == 1);
  CHECK(lacks(told[0], {"configuration one sets sep"}) == "");
  card(R"([{"config_name":"default","data_files":{"train":"**/*.parquet"}},{"config_name":"b","data_dir":"other"}])");
  CHECK(shown(scratch.path()) ==
        "train: main/test-0.parquet main/train-0.parquet other/a.parquet socratic/train-0.parquet");
  for (const auto& [configs, what] : std::map<std::string, std::string>{
           {R"({"a":1})", "no list"},
           {R"([{"data_files":"x"}])", "no config_name"},
           {R"([{"config_name":"a","data_files":"../*"}])", "elsewhere"},
           {R"([{"config_name":"a","data_files":"/etc/*"}])", "elsewhere"},
           {R"([{"config_name":"a","data_files":"https://x/y"}])", "elsewhere"},
           {R"([{"config_name":"a","data_files":[{"split":"train"}]}])", "not understood"},
           {R"([{"config_name":"a","data_files":[{"split":"t","path":"main/*"},{"split":"t","path":"main/*"}]}])",
            "twice"},
           {R"([{"config_name":"a","default":true},{"config_name":"default"}])", "several default"}}) {
    card(configs);
    CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }), {"data.42: ", what, "README.md"}) == "");
  }
  card(R"([{"config_name":"a","data_files":"nothing/*"}])");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }), {"data.1: ", "nothing/*", "configuration a"}) == "");
}

TEST_CASE("a card without configurations; a configuration that is a folder, or nothing") {
  const ScratchDirectory scratch;
  scratch.write("main/train.jsonl", "");
  scratch.write("README.md", "---\n{\"license\": \"mit\"}\n---\n");
  CHECK(shown(scratch.path()) == "train: main/train.jsonl");
  CHECK(shown(scratch.path(), "default") == "train: main/train.jsonl");
  CHECK(shown(scratch.path(), "main") == "train: main/train.jsonl");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path(), "other"); }), {"data.43: ", "found other"}) == "");
  scratch.write("README.md", "---\nconfigs:\n- config_name: a\n---\n");
  DatasetSource source;  // nothing that reads YAML
  CHECK(lacks(raised_by([&] { (void)files_of_folder(scratch.path(), source); }), {"data.42: ", "yaml_to_json"}) == "");
}

TEST_CASE("folders that save_to_disk wrote") {
  const std::filesystem::path golden = std::string(rlalgo::support::test_dir) + "/golden/data/columnar";
  CHECK(shown(golden / "saved") ==
        "test: test/data-00000-of-00001.arrow; train: train/data-00000-of-00002.arrow train/data-00001-of-00002.arrow");
  CHECK(shown(golden / "saved/test") == "train: data-00000-of-00001.arrow");
  CHECK(columns_shown(golden / "saved/test/data-00000-of-00001.arrow").empty());
  CHECK(columns_shown(golden / "saved-columns/data-00000-of-00001.arrow") == std::vector<std::string>{"n"});
  const ScratchDirectory scratch;
  const std::string state = scratch.write("state.json", R"({"_data_files":[{"filename":"a.arrow"}],"_split":"test"})");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }), {"data.42: ", "a.arrow", "missing", state}) == "");
  scratch.write("a.arrow", "");
  CHECK(shown(scratch.path()) == "test: a.arrow; train: a.arrow");
  for (const char* text :
       {"[1]", "{", R"({"_data_files":1})", R"({"_data_files":[]})", R"({"_data_files":[{"x":1}]})",
        R"({"_data_files":[{"filename":"a.arrow"}],"_indices_data_files":[{"filename":"i.arrow"}]})"}) {
    scratch.write("state.json", text);
    CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }), {"data.42: ", state}) == "");
  }
  scratch.write("state.json", R"({"trainer": 1})");  // of something else
  CHECK(shown(scratch.path()) == "train: a.arrow");
  scratch.write("dataset_dict.json", R"({"splits":["../x"]})");
  CHECK(lacks(raised_by([&] { (void)shown(scratch.path()); }), {"data.42: ", "no name"}) == "");
}
