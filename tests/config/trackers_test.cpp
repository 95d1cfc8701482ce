#include <rlalgo/config/trackers.hpp>

#include <support/scratch.hpp>

#include <string>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/validate.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

RunConfig parse(const std::string& more) {
  return parse_run_config(parse_document(
      "base_model: ./m\nrl: grpo\ndatasets:\n  - path: rows.jsonl\nlearning_rate: 1e-6\nmicro_batch_size: 8\ntrl:\n"
      "  reward_funcs: [rewards.correct]\n" +
          more,
      "c.yaml"));
}

}  // namespace

TEST_CASE("a tracker is on when it is used or its project is named, with the variables that axolotl sets") {
  const RunConfig wandb = parse("wandb_project: p\nwandb_entity: e\nwandb_run_id: r\nwandb_mode: offline\n");
  REQUIRE(wandb.trackers.size() == 1);
  CHECK(wandb.warnings.empty());
  CHECK(wandb.trackers[0].name == "wandb");
  CHECK(wandb.trackers[0].environment == std::map<std::string, std::string>{{"WANDB_PROJECT", "p"},
                                                                            {"WANDB_ENTITY", "e"},
                                                                            {"WANDB_RUN_ID", "r"},
                                                                            {"WANDB_NAME", "r"},
                                                                            {"WANDB_MODE", "offline"}});
  CHECK(parse("use_wandb: true\n").trackers.size() == 1);
  CHECK(parse("use_wandb: false\nwandb_project: p\n").trackers.size() == 1);  // as in axolotl
  CHECK(parse("wandb_project: p\nwandb_mode: disabled\n").trackers.empty());
  CHECK(parse("wandb_project:\nuse_wandb: false\n").trackers.empty());
  CHECK(parse("wandb_project: ''\n").trackers.empty());
  const RunConfig all = parse(
      "use_mlflow: true\nmlflow_tracking_uri: u\ntrackio_project_name: t\ncomet_project_name: c\ncomet_online: false\n"
      "comet_api_key: secret\ncomet_experiment_config: {name: n, tags: [a, b], log_code: true}\n");
  REQUIRE(all.trackers.size() == 3);
  CHECK(all.trackers[0].environment == std::map<std::string, std::string>{{"MLFLOW_TRACKING_URI", "u"}});
  CHECK(all.trackers[1].environment == std::map<std::string, std::string>{{"TRACKIO_PROJECT_NAME", "t"}});
  CHECK(all.trackers[2].environment == std::map<std::string, std::string>{{"COMET_PROJECT_NAME", "c"},
                                                                          {"COMET_START_ONLINE", "false"},
                                                                          {"COMET_API_KEY", "secret"},
                                                                          {"COMET_START_EXPERIMENT_NAME", "n"},
                                                                          {"COMET_START_EXPERIMENT_TAGS", "a,b"}});
  REQUIRE(all.warnings.size() == 1);
  CHECK(lacks(all.warnings[0], {"comet_experiment_config.log_code has no effect"}) == "");
}

TEST_CASE("keys of trackers are no settings of the run, and an account's key is in no file") {
  const RunConfig config = parse("comet_project_name: c\ncomet_api_key: sesame\nwandb_project: p\n");
  CHECK(config.settings.dump().find("sesame") == std::string::npos);
  CHECK_FALSE(config.settings.contains("wandb_project"));
}

TEST_CASE("keys without a tracker, misspelt ones and unknown modes are said") {
  const RunConfig idle = parse("wandb_name: n\n");
  REQUIRE(idle.warnings.size() == 1);
  CHECK(lacks(idle.warnings[0], {"wandb_name has no effect", "use_wandb", "wandb_project"}) == "");
  CHECK(lacks(raised_by([] { (void)parse("wandb_projet: p\n"); }), {"config.4", "wandb_project"}) == "");
  CHECK(lacks(raised_by([] { (void)parse("wandb_project: p\nwandb_mode: offlin\n"); }), {"config.6", "offline"}) == "");
}

TEST_CASE("eval_on_start says whether there is an evaluation before the first step") {
  const auto first = [](const std::string& more) {
    const RunConfig config = parse("val_set_size: 0.1\n" + more);
    return make_plan(config, geometry_of(config), 100, true).eval_first;
  };
  CHECK_FALSE(first(""));
  CHECK(first("eval_steps: 5\n"));
  CHECK_FALSE(first("eval_steps: 5\neval_on_start: false\n"));
  CHECK(first("eval_on_start: true\n"));
  CHECK(first("eval_strategy: 'no'\neval_on_start: true\n"));
  CHECK_FALSE(parse("").settings.contains("eval_on_start"));   // runs without it are what they were
  CHECK(parse("eval_on_start: true\n").warnings.size() == 1);  // there is nothing to evaluate on
  CHECK(parse("eval_on_start: false\n").warnings.empty());
}

TEST_CASE("several ranks have one tracker") {
  RunConfig config;
  config.trackers = {{.name = "wandb", .environment = {}}};
  CHECK(Trackers(config, {}).observers().size() == 1);
}
