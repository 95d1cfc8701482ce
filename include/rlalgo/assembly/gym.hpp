// A NeMo Gym: its rows as prompts, itself found or started, its rewards and agents.
//
// A dataset path is absolute, in a home directory, or below the Gym's directory; a file of that name in the working directory is
// found, too. Rows are kept as they are: they are the columns of their prompts. Of several ranks the first starts the Gym.
//
// Errors: those of remote/gym*.hpp and data/gym_row.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/assembly/server.hpp>
#include <rlalgo/core/permutation.hpp>
#include <rlalgo/data/gym_row.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/gym.hpp>
#include <rlalgo/remote/gym_agents.hpp>
#include <rlalgo/remote/gym_process.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/run/interrupt.hpp>

namespace rlalgo::assembly {

struct GymDataset {
  std::string path = {};
  std::optional<std::string> server_name = {};   // of rows that name none
  std::optional<std::int64_t> max_samples = {};  // drawn with the seed
  std::string where = {};                        // the place that named it, for error texts
};

struct GymConfig {
  std::filesystem::path directory = {};
  std::vector<GymDataset> datasets = {};
  double held_out = 0.0;  // fraction of the shuffled rows
  bool shuffle = true, shuffle_each = false;
  std::uint64_t seed = 42;

  std::int64_t head_port = 11000;
  double start_seconds = 600.0, verify_seconds = 30.0;
  double run_seconds = 300.0;  // of an agent's episode
  std::int64_t retries = 3;
  bool agents = false;  // play the rows; else the Gym rewards single answers
  bool failures_end_the_run = true;
  std::string model = {};                                             // as verifiers know it
  std::function<data::Json(const std::string& yaml)> read_yaml = {};  // of the head server's document

  bool starts = true;  // a Gym that does not run is started, with:
  std::vector<std::string> config_paths = {};
  std::string policy = "policy";  // the model's name, for agents that ask a server of this process
  std::function<std::vector<std::string>()> turn_limits =
      {};  // what limits agents' turns in its configurations; empty: nothing
  std::filesystem::path log_directory = ".";
};

namespace detail {

inline std::string gym_dataset_path(const GymConfig& c, const GymDataset& dataset) {
  const std::filesystem::path path = os::expand_home(dataset.path, dataset.where);
  if (path.is_absolute()) return path.string();
  const std::filesystem::path below = c.directory / path;
  return os::exists(below) || !os::exists(path) ? below.string() : path.string();
}

// {"prompt": messages, "row": the row}: no columns of rows are made alike.
inline data::Table gym_table(const GymConfig& c, const GymDataset& dataset) {
  data::DatasetSource source;
  source.path = gym_dataset_path(c, dataset);
  data::RowStream rows(source);
  data::Table out;
  for (std::vector<data::Record> records; rows.next(1024, records);)
    for (data::Record& record : records) {
      data::parse(record);
      data::Json messages = data::gym_messages(record.value, record.origin.text());
      if (dataset.server_name) record.value[remote::gym_server_column] = {{"name", *dataset.server_name}};
      out.append({{"prompt", std::move(messages)}, {"row", std::move(record.value)}}, std::move(record.origin));
    }
  if (!dataset.max_samples || static_cast<std::size_t>(*dataset.max_samples) >= out.size()) return out;
  std::mt19937 generator(static_cast<std::uint32_t>(c.seed));
  std::vector<std::size_t> order = core::permutation(out.size(), generator);
  order.resize(static_cast<std::size_t>(*dataset.max_samples));
  return out.selected(order);
}

}  // namespace detail

[[nodiscard]] inline Prompts load_gym_prompts(const GymConfig& c) {
  std::vector<data::Table> tables;
  for (const GymDataset& dataset : c.datasets) tables.push_back(detail::gym_table(c, dataset));
  data::HeldOut rows;
  rows.train = data::merge(tables, {.seed = c.seed, .shuffle = c.shuffle, .shuffle_before = c.shuffle_each});
  if (c.held_out > 0) rows = data::hold_out(rows.train, c.held_out);
  Prompts out;
  const auto prompts = [](const data::Table& table) {
    std::vector<data::TokenizedPrompt> list = data::prompts_of(table);
    for (data::TokenizedPrompt& one : list) one.columns = data::Json(std::move(one.columns.at("row")));
    return list;
  };
  out.train = prompts(rows.train);
  out.evaluation = prompts(rows.evaluation);
  return out;
}

// What lives as long as the run.
struct Gym {
  std::unique_ptr<remote::GymProcess> process = {};  // only what this program started
  std::shared_ptr<remote::Gym> gym = {};
  std::shared_ptr<remote::GymVerifier> verifier = {};  // of single answers; null: agents play
};

namespace detail {

// By which names a Gym's configurations ask for the model that its agents talk to.
[[nodiscard]] inline std::vector<std::string> policy_overrides(const GymConfig& c, const std::string& served_at) {
  if (served_at.empty()) return {};
  const std::string key = server_key();
  return {"+policy_base_url=" + served_at + "/v1", "+policy_model_name=" + c.policy,
          "+policy_api_key=" + (key.empty() ? std::string("none") : key)};
}

}  // namespace detail

// Found or started, with the servers that the rows need. `served_at`: of a generation server that its agents are to ask, which a Gym
// that is started gets (policy_base_url, policy_model_name, policy_api_key). `first`: this rank is the first.
[[nodiscard]] inline std::shared_ptr<Gym> find_gym(const GymConfig& g, const Prompts& prompts, bool first,
                                                   const std::function<void(const std::string&)>& tell = {},
                                                   const std::string& served_at = {}) {
  const auto out = std::make_shared<Gym>();
  remote::GymConfig settings{.head = "http://127.0.0.1:" + std::to_string(g.head_port),
                             .start_seconds = g.start_seconds,
                             .retries = g.retries,
                             .yaml = g.read_yaml,
                             .tell = tell,
                             .stop = run::Interrupt::token()};
  http::Client head({.base_url = settings.head, .retries = {.retries = 0}, .stop = settings.stop});
  const bool runs = head.call({.method = "GET", .target = "/"}, {.seconds = 10.0}).answered();
  if (!runs && g.starts && first) {
    std::filesystem::create_directories(g.log_directory);
    const std::filesystem::path log = std::filesystem::absolute(g.log_directory / "ng_run.log");
    if (tell) tell("the NeMo Gym in " + g.directory.string() + " is started; its log is " + log.string());
    std::vector<std::string> overrides = detail::policy_overrides(g, served_at);
    if (g.turn_limits)
      for (std::string& limit : g.turn_limits()) overrides.push_back(std::move(limit));
    out->process = std::make_unique<remote::GymProcess>(remote::GymProcessConfig{.directory = g.directory,
                                                                                 .config_paths = g.config_paths,
                                                                                 .head_port = g.head_port,
                                                                                 .overrides = std::move(overrides),
                                                                                 .log = log});
    settings.still_starting = [process = out->process.get()] { process->require_running(); };
  } else if (g.turn_limits && tell && first) {
    tell(
        "nemo_gym_max_turns has no effect on a Gym that runs already: its agents' limit is max_steps of their "
        "configurations");
  }
  out->gym = std::make_shared<remote::Gym>(std::move(settings));
  out->gym->discover({});
  std::vector<remote::Gym::Needed> needed;
  std::set<std::string> names;
  for (const auto* list : {&prompts.train, &prompts.evaluation})
    for (const data::TokenizedPrompt& prompt : *list)
      if (std::string name = g.agents ? remote::gym_agent_of(prompt.columns, out->gym->directory())
                                      : remote::gym_resources_of(prompt.columns, out->gym->directory());
          names.insert(name).second)
        needed.push_back({g.agents ? remote::GymKind::agent : remote::GymKind::resources, std::move(name),
                          "dataset row " + std::to_string(prompt.row) + " of nemo_gym_datasets"});
  out->gym->discover(needed);
  if (!g.agents)
    out->verifier = std::make_shared<remote::GymVerifier>(
        out->gym, remote::GymVerifyConfig{
                      .seconds = g.verify_seconds, .model = g.model, .refusals_end_the_run = g.failures_end_the_run});
  return out;
}

// The agents of episodes, whose tokens are the model's.
[[nodiscard]] inline std::shared_ptr<remote::GymAgents> gym_agents(
    const GymConfig& g, const Gym& gym, const LanguageModel& model,
    const std::function<void(const std::string&)>& tell = {}) {
  return std::make_shared<remote::GymAgents>(gym.gym,
                                             remote::GymAgentsConfig{.seconds = g.run_seconds,
                                                                     .vocab_size = model.decoder->config().vocab_size,
                                                                     .max_positions = model.max_positions,
                                                                     .failures_end_the_run = g.failures_end_the_run,
                                                                     .tell = tell});
}

}  // namespace rlalgo::assembly
