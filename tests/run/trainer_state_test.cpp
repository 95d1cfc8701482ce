#include <rlalgo/run/trainer_state.hpp>

#include <support/catch.hpp>

using namespace rlalgo::run;

TEST_CASE("trainer_state.json has the keys of transformers, in its order") {
  const TrainerState state{.step = 3,
                           .epoch = 0.75,
                           .max_steps = 9,
                           .num_epochs = 1.5,
                           .logging_steps = 1,
                           .save_steps = 5,
                           .eval_steps = 0,
                           .tokens = 77,
                           .train_batch_size = 4};
  const Json json =
      Json::parse(to_text(state, {to_line({1, 0.25, {{"loss", 2.0}}}), to_line({3, 0.75, {{"loss", 1.0}}})}));
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key + " ";
  CHECK(keys ==
        "best_global_step best_metric best_model_checkpoint epoch eval_steps global_step is_hyper_param_search "
        "is_local_process_zero is_world_process_zero log_history logging_steps max_steps num_input_tokens_seen "
        "num_train_epochs save_steps stateful_callbacks total_flos train_batch_size trial_name trial_params ");
  CHECK(json["global_step"] == 3);
  CHECK(json["num_input_tokens_seen"] == 77);
  CHECK(json["num_train_epochs"].dump() == "2");
  CHECK(json["log_history"].size() == 2);
  CHECK(json["log_history"][1]["loss"] == 1.0);
  CHECK(Json::parse(to_text(state, {}))["log_history"] == Json::array());
}
