#include <support/scratch.hpp>

#include <map>
#include <string>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/structure_keys.hpp>

using namespace rlalgo::config;
using rlalgo::support::raised_by;

namespace {

std::string error_of(const std::string& more) {
  const std::string text = "base_model: ./m\nrl: dpo\nlearning_rate: 1e-6\nmicro_batch_size: 2\n" + more;
  return raised_by([&] { (void)parse_run_config(parse_document(text, "c.yaml")); });
}

}  // namespace

TEST_CASE("rows of what has a reader of its own name keys that it knows") {
  for (const Keys& rows : {recipe_keys(), refused_precision_keys(), file_format_keys(), adapter_choice_keys(),
                           arguments_keys(), other_layout_keys(), tracker_rows()})
    for (const Key& row : rows) {
      INFO(row.name);
      const std::string error = error_of("datasets: [{path: r.jsonl}]\n" + std::string(row.name) + ": [[a]]\n");
      CHECK(error.find("config.4]") == std::string::npos);
    }
}

TEST_CASE("rows of an entry of datasets name keys that its reader knows") {
  for (const Key& row : entry_keys()) {
    INFO(row.name);
    CHECK(row.name.starts_with("datasets[]."));
    const std::string own(row.name.substr(11));
    const std::string error = error_of("datasets: [{path: r.jsonl, " + own + ": [[a]]}]\n");
    CHECK(error.find("config.4]") == std::string::npos);
  }
  CHECK(error_of("datasets: [{path: r.jsonl, no_such_key: 1}]\n").find("config.4]") != std::string::npos);
}

TEST_CASE("a tracker has a row for each key that its client is given") {
  std::map<std::string_view, std::string_view> forms;
  for (const Key& row : tracker_rows()) CHECK(forms.emplace(row.name, row.form).second);
  CHECK(forms.at("use_wandb") == "true, false");
  CHECK(forms.at("mlflow_tracking_uri") == "text");
  CHECK(forms.size() >= 20);
}
