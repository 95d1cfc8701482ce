// A NeMo Gym as the configuration asks for it: its rows as prompts, itself found or started, its rewards.
//
// A dataset path is absolute, in a home directory, or below nemo_gym_dir; a file of that name in the working directory is
// found, too. Rows are kept as they are: they are the columns of their prompts. Of several ranks the first starts the Gym.
//
// Errors: those of remote/gym*.hpp and data/gym_row.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_nemo_gym.hpp>
#include <rlalgo/config/document.hpp>
#include <rlalgo/config/gym_turn_limits.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/load_data.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/permutation.hpp>
#include <rlalgo/data/gym_row.hpp>
#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/remote/gym.hpp>
#include <rlalgo/remote/gym_agents.hpp>
#include <rlalgo/remote/gym_process.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/run/interrupt.hpp>

namespace rlalgo::config {

[[nodiscard]] inline std::filesystem::path gym_directory(const RunConfig& c) {
  return os::expand_home(c.nemo_gym.dir, c.place("nemo_gym_dir"));
}

namespace detail {

inline std::string gym_dataset_path(const RunConfig& c, const NemoGymDataset& dataset) {
  const std::filesystem::path path = os::expand_home(dataset.path, dataset.place.text());
  if (path.is_absolute()) return path.string();
  const std::filesystem::path below = gym_directory(c) / path;
  return os::exists(below) || !os::exists(path) ? below.string() : path.string();
}

// {"prompt": messages, "row": the row}: no columns of rows are made alike.
inline data::Table gym_table(const RunConfig& c, const NemoGymDataset& dataset) {
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

// Of load_prompts(), where the rows are a Gym's.
[[nodiscard]] inline Prompts load_gym_prompts(const RunConfig& c) {
  std::vector<data::Table> tables;
  for (const NemoGymDataset& dataset : c.nemo_gym.datasets) tables.push_back(detail::gym_table(c, dataset));
  data::HeldOut rows;
  rows.train = data::merge(
      tables,
      {.seed = c.seed, .shuffle = c.shuffle_merged_datasets, .shuffle_before = c.shuffle_before_merging_datasets});
  if (c.val_set_size > 0) rows = data::hold_out(rows.train, c.val_set_size);
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
struct NemoGym {
  std::unique_ptr<remote::GymProcess> process;  // only what this program started
  std::shared_ptr<remote::Gym> gym;
  std::shared_ptr<remote::GymVerifier> verifier;  // of single turns; null: agents play
};

// By which names a Gym's configurations ask for the model that its agents talk to.
[[nodiscard]] inline std::vector<std::string> policy_overrides(const RunConfig& c, const std::string& served_at) {
  if (served_at.empty()) return {};
  const char* const key = std::getenv("VLLM_API_KEY");
  return {"+policy_base_url=" + served_at + "/v1", "+policy_model_name=" + c.nemo_gym.model_name.value_or("policy"),
          std::string("+policy_api_key=") + (key != nullptr && *key != '\0' ? key : "none")};
}

// Null: there is none. Found or started, with the servers that the rows need. `served_at`: of a generation server that its
// agents are to ask, which a Gym that is started is told (policy_base_url, policy_model_name, policy_api_key).
[[nodiscard]] inline std::shared_ptr<NemoGym> nemo_gym(const RunConfig& c, std::span<const data::TokenizedPrompt> train,
                                                       std::span<const data::TokenizedPrompt> evaluation,
                                                       const std::function<void(const std::string&)>& tell = {},
                                                       const std::string& served_at = {}) {
  const NemoGymConfig& g = c.nemo_gym;
  if (!g.enabled) return nullptr;
  const auto out = std::make_shared<NemoGym>();
  remote::GymConfig settings{
      .head = "http://127.0.0.1:" + std::to_string(g.head_port),
      .start_seconds = g.server_timeout,
      .retries = c.trl.reward_max_retries,
      .yaml = [](const std::string& text) { return to_json(parse_document(text, "the head server's document").root); },
      .tell = tell,
      .stop = run::Interrupt::token()};
  http::Client head({.base_url = settings.head, .retries = {.retries = 0}, .stop = settings.stop});
  const bool runs = head.call({.method = "GET", .target = "/"}, {.seconds = 10.0}).answered();
  if (!runs && g.auto_start && world_of(c)->rank() == 0) {
    std::filesystem::create_directories(c.output_dir);
    const std::filesystem::path log = std::filesystem::absolute(std::filesystem::path(c.output_dir) / "ng_run.log");
    if (tell) tell("the NeMo Gym in " + gym_directory(c).string() + " is started; its log is " + log.string());
    std::vector<std::string> overrides = policy_overrides(c, served_at);
    if (g.max_turns)
      for (std::string& limit : gym_turn_limits(gym_directory(c), g.config_paths, *g.max_turns))
        overrides.push_back(std::move(limit));
    out->process = std::make_unique<remote::GymProcess>(remote::GymProcessConfig{.directory = gym_directory(c),
                                                                                 .config_paths = g.config_paths,
                                                                                 .head_port = g.head_port,
                                                                                 .overrides = std::move(overrides),
                                                                                 .log = log});
    settings.still_starting = [process = out->process.get()] { process->require_running(); };
  } else if (g.max_turns && tell && world_of(c)->rank() == 0) {
    tell(
        "nemo_gym_max_turns has no effect on a Gym that runs already: its agents' limit is max_steps of their "
        "configurations");
  }
  out->gym = std::make_shared<remote::Gym>(std::move(settings));
  out->gym->discover({});
  std::vector<remote::Gym::Needed> needed;
  std::set<std::string> names;
  for (const auto& list : {train, evaluation})
    for (const data::TokenizedPrompt& prompt : list)
      if (std::string name = g.multi_turn ? remote::gym_agent_of(prompt.columns, out->gym->directory())
                                          : remote::gym_resources_of(prompt.columns, out->gym->directory());
          names.insert(name).second)
        needed.push_back({g.multi_turn ? remote::GymKind::agent : remote::GymKind::resources, std::move(name),
                          "dataset row " + std::to_string(prompt.row) + " of nemo_gym_datasets"});
  out->gym->discover(needed);
  if (g.multi_turn) return out;
  out->verifier = std::make_shared<remote::GymVerifier>(
      out->gym, remote::GymVerifyConfig{.seconds = g.verify_timeout,
                                        .model = g.model_name.value_or(c.base_model),
                                        .refusals_end_the_run = c.trl.reward_on_failure == "error"});
  return out;
}

// The agents of episodes, whose tokens are the model's.
[[nodiscard]] inline std::shared_ptr<remote::GymAgents> gym_agents(
    const RunConfig& c, const NemoGym& gym, const LanguageModel& model,
    const std::function<void(const std::string&)>& tell = {}) {
  return std::make_shared<remote::GymAgents>(
      gym.gym, remote::GymAgentsConfig{.seconds = c.nemo_gym.run_timeout,
                                       .vocab_size = model.decoder->config().vocab_size,
                                       .max_positions = model.max_positions,
                                       .failures_end_the_run = c.trl.reward_on_failure == "error",
                                       .tell = tell});
}

}  // namespace rlalgo::config
