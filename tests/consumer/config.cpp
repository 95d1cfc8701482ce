// A stranger's program on the configuration floor: reads a file as `rlalgo train` does.
#include <rlalgo/config/parse.hpp>

#include <cstdio>
#include <fstream>

int main() {
  std::ofstream("consumer.yaml") << "base_model: model\nrl: grpo\nlearning_rate: 1.0e-6\nlearning_rat: 1\n"
                                    "micro_batch_size: 8\ndatasets: [{path: rows.jsonl}]\n"
                                    "trl: {reward_funcs: [rewards.correct]}\n";
  try {
    (void)rlalgo::config::load_run_config("consumer.yaml");
  } catch (const rlalgo::core::Error& error) {
    std::printf("%s\n", error.what());
    return error.room() == "config" && error.number() == 4 && error.exit_code() == 2 ? 0 : 1;
  }
  return 1;
}
