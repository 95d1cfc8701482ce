#include <support/scratch.hpp>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/names_elsewhere.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

std::string error_of(const std::string& more, const std::string& rl = "dpo") {
  const std::string text =
      "base_model: ./m\nrl: " + rl + "\ndatasets: [{path: r.jsonl, type: chatml.intel}]\nlearning_rate: 1e-6\n" + more;
  return raised_by([&] { (void)parse_run_config(parse_document(text, "c.yaml")); });
}

std::vector<std::string> words(std::string_view list) {
  std::istringstream in{std::string(list)};
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

TEST_CASE("an argument of TRL is answered with the key that says the same") {
  CHECK(lacks(error_of("per_device_train_batch_size: 4\n"), {"config.4", "unknown key per_device_train_batch_size",
                                                             "c.yaml:5", "it is written micro_batch_size here"}) == "");
  CHECK(lacks(error_of("dataset_name: x\n"), {"config.4", "it is written datasets: [{path: …}] here"}) == "");
  CHECK(lacks(error_of("num_processes: 2\n"), {"it is written --nproc-per-node here: `rlalgo train"}) == "");
  CHECK(lacks(error_of("trl: {max_new_tokens: 8}\n"),
              {"unknown key trl.max_new_tokens", "it is written trl.max_completion_length here"}) == "");
  CHECK(lacks(error_of("num_generations: 4\n", "grpo"), {"this key is written trl.num_generations"}) == "");
  CHECK(lacks(error_of("loss_type: hinge\n"), {"it is written dpo_loss_type here: a list"}) == "");
  CHECK(lacks(error_of("loss_type: apo_zero_unpaired\n", "kto"), {"this key is written trl.loss_type"}) == "");
}

TEST_CASE("what nothing here says is answered with the reason") {
  CHECK(lacks(error_of("disable_tqdm: true\n"), {"config.4", "remove it: a line of progress is for terminals alone"}) ==
        "");
  CHECK(lacks(error_of("push_to_hub: true\n"), {"remove it: nothing is uploaded"}) == "");
  CHECK_FALSE(written_here("learning_rat", "dpo"));
  CHECK(lacks(error_of("learning_rat: 1\n"), {"did you mean learning_rate?"}) == "");
}

TEST_CASE("a key that was meant by another name is not judged missing or out of range") {
  const std::string error = raised_by([&] {
    (void)parse_run_config(
        parse_document("model_name_or_path: ./m\nrl: dpo\ndatasets: [{path: r}]\nlr: 1e-6\n", "c.yaml"));
  });
  CHECK(lacks(error, {"it is written base_model here", "it is written learning_rate here"}) == "");
  CHECK(error.find("is missing") == std::string::npos);
}

TEST_CASE("each name stands in one place, is no key of ours, and leads to one") {
  std::set<std::string> seen, ours = {"--nproc-per-node"};
  for (const Key& row : every_key()) ours.emplace(row.name);
  for (const NameElsewhere& row : names_elsewhere()) {
    INFO(row.names);
    CHECK(ours.contains(std::string(row.key)));
    for (const std::string& name : words(row.names)) {
      INFO(name);
      CHECK(seen.insert(name).second);
      CHECK_FALSE(ours.contains(name));
    }
  }
  for (const Reason& row : reasons_elsewhere())
    for (const std::string& name : words(row.keys)) {
      INFO(name);
      CHECK(seen.insert(name).second);
      CHECK_FALSE(ours.contains(name));
    }
}
