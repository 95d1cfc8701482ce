// Whole runs on a device whose memory the host may not touch: the CPU's numbers, resumed to the byte, and how many
// operators, copies and waits they take.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/config/evaluate.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/train.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;
using support::lacks;
using support::raised_by;

namespace {

const fs::path quickstart = fs::path(support::test_dir).parent_path() / "examples" / "quickstart";

std::string line(const nlohmann::json& json) { return json.dump() + "\n"; }

// Data of every kind, beside the configuration.
struct Workshop {
  support::ScratchDirectory scratch;

  Workshop() {
    std::string pairs, unpaired, completions;
    for (int i = 0; i < 12; ++i) {
      const std::string question = std::to_string(i % 7) + " + " + std::to_string(i % 5) + " =";
      const std::string right = " " + std::to_string(i % 7 + i % 5),
                        wrong = " apples" + std::string(i % 3 == 0 ? " 1" : "");
      pairs += line({{"prompt", question}, {"chosen", right}, {"rejected", wrong}});
      unpaired += line({{"prompt", question}, {"completion", i % 2 == 0 ? right : wrong}, {"label", i % 2 == 0}});
      completions += line({{"input", question}, {"output", right}});
    }
    scratch.write("pairs.jsonl", pairs);
    scratch.write("unpaired.jsonl", unpaired);
    scratch.write("completions.jsonl", completions);
    scratch.write(
        "letters.py",
        "def total(completions, **kwargs):\n    return [float(sum(map(ord, str(c))) % 7) for c in completions]\n");
  }

  [[nodiscard]] config::RunConfig config(const std::string& method, const std::string& device,
                                         const std::string& out) const {
    std::string text =
        "base_model: " + (quickstart / "model").string() + "\n" + method + "learning_rate: 1.0e-3\n" +
        "lr_scheduler: constant\nwarmup_steps: 0\nlogging_steps: 1\noutput_dir: " + (scratch.path() / out).string() +
        "\ndevice: " + device + "\n";
    for (const char* name : {"pairs.jsonl", "unpaired.jsonl", "completions.jsonl"})
      for (std::size_t at = 0; (at = text.find(std::string(" ") + name, at)) != std::string::npos;)
        text.replace(at + 1, std::string(name).size(), (scratch.path() / name).string());
    return config::load_run_config(scratch.write("config.yaml", text));
  }

  [[nodiscard]] std::vector<nlohmann::json> train(const std::string& method, const std::string& device,
                                                  const std::string& out = "out") const {
    fs::remove_all(scratch.path() / out);
    (void)config::train(config(method, device, out));
    std::vector<nlohmann::json> records;
    std::ifstream in(scratch.path() / out / "metrics.jsonl");
    for (std::string one; std::getline(in, one);) records.push_back(nlohmann::json::parse(one));
    return records;
  }

  [[nodiscard]] std::string bytes(const std::string& file) const {
    std::ifstream in(scratch.path() / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

const std::string pairs =
    "micro_batch_size: 2\ngradient_accumulation_steps: 2\nmax_steps: 2\nsave_strategy: \"no\"\n"
    "sequence_len: 64\ndatasets:\n  - path: pairs.jsonl\n";
const std::string prompts =
    "micro_batch_size: 4\ngradient_accumulation_steps: 2\nmax_steps: 2\nsave_strategy: \"no\"\n"
    "datasets:\n  - path: " +
    (quickstart / "data/train.jsonl").string() + "\n    type: rewards.oai_gsm8k_transform\n";
const std::string lora =
    "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_dropout: 0.1\nlora_target_modules: [q_proj, v_proj, down_proj]\n";

std::string online(const std::string& rl, const std::string& trl) {
  return "rl: " + rl + "\n" + prompts +
         "trl:\n  num_generations: 4\n  max_completion_length: 8\n  reward_funcs: [letters.total, "
         "builtin.gsm8k_format]\n" +
         trl;
}

// What is compared: everything that the run logs but times and memory.
void check_same(const std::vector<nlohmann::json>& cpu, const std::vector<nlohmann::json>& far, double tolerance) {
  REQUIRE(cpu.size() == far.size());
  REQUIRE_FALSE(cpu.empty());
  bool trained = false;
  for (std::size_t i = 0; i < cpu.size(); ++i)
    for (const auto& [name, value] : cpu[i].items()) {
      if (!value.is_number() || name.starts_with("time/") || name.starts_with("async/") || name == "sync/seconds" ||
          name.find("memory") != std::string::npos || name.find("per_second") != std::string::npos ||
          name.find("tokens_per") != std::string::npos)
        continue;
      // Whether a margin that is rounding alone is above 0 says nothing.
      if (name.ends_with("rewards/accuracies") && std::abs(cpu[i].value("rewards/margins", 1.0)) < 1e-5) continue;
      INFO(name << " of record " << i);
      REQUIRE(far[i].contains(name));
      const double a = value.get<double>(), b = far[i].at(name).get<double>();
      trained = trained || (name == "grad_norm" && a > 0.0);
      CHECK(std::abs(a - b) <= tolerance * std::max(1.0, std::abs(a)));
    }
  CHECK(trained);
}

}  // namespace

TEST_CASE("preference learning on a device prints the CPU's numbers") {
  support::far::device();
  const Workshop w;
  const std::string kto = [] {
    std::string text = pairs;
    return text.replace(text.find("pairs.jsonl"), 11, "unpaired.jsonl");
  }();
  const std::vector<std::pair<const char*, std::string>> methods = {
      {"dpo", "rl: dpo\n" + pairs},
      {"dpo, recomputed", "rl: dpo\ngradient_checkpointing: true\n" + pairs},
      {"dpo, evaluated", "rl: dpo\nval_set_size: 0.3\neval_steps: 1\n" + pairs},
      {"dpo, bfloat16 log-probs of a reference before training",
       "rl: dpo\n" + pairs + "precompute_ref_log_probs: true\n"},
      {"ipo", "rl: ipo\n" + pairs},
      {"kto", "rl: kto\n" + kto},
      {"orpo", "rl: orpo\n" + pairs},
      {"simpo", "rl: simpo\n" + pairs},
      {"cpo", "rl: cpo\n" + pairs},
      {"dpo, lora", "rl: dpo\n" + pairs + lora},
      {"dpo, dora", "rl: dpo\n" + pairs + lora + "peft_use_dora: true\n"},
      {"dpo, 8 bits", "rl: dpo\noptimizer: adamw_bnb_8bit\n" + pairs},
      {"dpo, adafactor", "rl: dpo\noptimizer: adafactor\n" + pairs},
      {"dpo, muon", "rl: dpo\noptimizer: muon\n" + pairs},
      {"dpo, pissa", "rl: dpo\n" + pairs + lora + "peft_init_lora_weights: pissa\n"},
  };
  for (const auto& [name, method] : methods) {
    INFO(name);
    check_same(w.train(method, "cpu"), w.train(method, "far:0"), 2e-4);
  }
}

TEST_CASE("online methods on a device print the CPU's numbers") {
  support::far::device();
  const Workshop w;
  const std::vector<std::pair<const char*, std::string>> methods = {
      {"grpo", online("grpo", "  loss_type: grpo\n")},
      {"grpo, reference", online("grpo", "  beta: 0.04\n  loss_type: dapo\n")},
      {"gspo, twice", online("grpo", "  importance_sampling_level: sequence\n  num_iterations: 2\n")},
      {"gdpo", online("gdpo", "")},
      {"rloo", online("rloo", "")},
      {"grpo, lora", online("grpo", "  beta: 0.04\n") + lora},
      {"grpo, asynchronous", online("grpo", "  use_data_producer: true\n  async_prefetch: true\n")},
      {"grpo, evaluated", online("grpo", "") + "val_set_size: 0.3\neval_steps: 2\n"},
  };
  for (const auto& [name, method] : methods) {
    INFO(name);
    check_same(w.train(method, "cpu"), w.train(method, "far:0"), 5e-4);
  }
}

TEST_CASE("training with the project's kernels prints the CPU's numbers") {
  support::far::device();
  const Workshop w;
  const std::vector<std::pair<const char*, std::string>> methods = {
      {"dpo", "rl: dpo\n" + pairs},
      {"dpo, recomputed", "rl: dpo\ngradient_checkpointing: true\n" + pairs},
      {"dpo, lora", "rl: dpo\n" + pairs + lora},
      {"grpo", online("grpo", "  beta: 0.04\n")},
  };
  for (const auto& [name, method] : methods) {
    INFO(name);
    const auto cpu = w.train(method, "cpu");
    const support::far::WithKernels kernels;
    const auto before = support::far::counts();
    check_same(cpu, w.train(method, "far:0"), 5e-4);
    CHECK(support::far::counts().since(before).kernels > 100);
  }
}

TEST_CASE("energy-based fine-tuning on a device prints the CPU's numbers, in both modes") {
  support::far::device();
  const Workshop w;
  const std::string common = "rl: ebft\nmax_steps: 2\nsave_strategy: \"no\"\ngradient_accumulation_steps: 2\n";
  const std::string strided =
      common +
      "micro_batch_size: 2\nsequence_len: 48\ndatasets:\n  - path: " + (quickstart / "data/train.jsonl").string() +
      "\n    type: ebft_strided_structured.transform\nebft: {mode: strided, stride: 4, context_length: 4, "
      "generate_max_len: 3, n_samples_per_prompt: 3, use_whitening: true, ce_coef: 0.1}\n";
  const std::string structured = common +
                                 "micro_batch_size: 4\nchat_template: tokenizer_default\ndatasets:\n  - path: "
                                 "completions.jsonl\n    type: ebft_opencode.transform\nebft: {mode: structured, "
                                 "embed_method: completion_mean, ce_coef: 0.1}\ntrl: {num_generations: 4, "
                                 "max_completion_length: 8}\n";
  for (const std::string& method : {strided, structured})
    check_same(w.train(method, "cpu"), w.train(method, "far:0"), 5e-4);
}

TEST_CASE("bfloat16 on a device is the CPU's to rounding") {
  support::far::device();
  const Workshop w;
  const auto cpu = w.train("rl: dpo\nbf16: true\n" + pairs, "cpu"),
             far = w.train("rl: dpo\nbf16: true\n" + pairs, "far:0");
  check_same(cpu, far, 6e-2);
  // What a step took of the device's memory at most: a model of 0.7 million weights with masters and moments, in GiB.
  for (const char* name : {"memory/max_allocated (GiB)", "memory/max_active (GiB)", "memory/device_reserved (GiB)"}) {
    CHECK_FALSE(cpu.front().contains(name));
    CHECK(far.front().at(name).get<double>() > 0.7e6 * 14 / 1073741824.0);
    CHECK(far.front().at(name).get<double>() < 1.0);
  }
}

TEST_CASE("a run on a device that is stopped and resumed writes the same bytes") {
  support::far::device();
  const Workshop w;
  for (const std::string& method :
       {"rl: dpo\n" + pairs, "rl: dpo\noptimizer: adamw_bnb_8bit\n" + pairs, online("grpo", "  beta: 0.04\n") + lora}) {
    std::string saved = method;
    saved.replace(saved.find("max_steps: 2\nsave_strategy: \"no\""), 32, "max_steps: 3\nsave_steps: 2");
    (void)w.train(saved, "far:0", "whole");
    saved += "resume_from_checkpoint: " + (w.scratch.path() / "whole/checkpoint-2").string() + "\n";
    (void)w.train(saved, "far:0", "resumed");
    const std::string file =
        fs::exists(w.scratch.path() / "whole/model.safetensors") ? "model.safetensors" : "adapter_model.safetensors";
    CHECK(w.bytes("whole/" + file).size() > 1000);
    CHECK(w.bytes("whole/" + file) == w.bytes("resumed/" + file));
    // On another device its numbers are others, so that is no resume.
    CHECK(lacks(raised_by([&] { (void)w.train(saved, "cpu", "other"); }), {"run.12", "device"}) == "");
  }
}

TEST_CASE("a device whose memory is used up ends the run with what helps") {
  support::far::device();
  const Workshop w;
  const auto run = w.config("rl: dpo\n" + pairs, "far:0", "full");
  support::far::fail_allocation();
  CHECK(lacks(raised_by([&] { (void)config::train(run); }),
              {"tensor.14", "Tried to allocate", "micro_batch_size", "gradient_checkpointing", "resumes"}) == "");
}

TEST_CASE("a loss that is not finite ends a run on a device with the rows that made it, as on the CPU") {
  support::far::device();
  const Workshop w;
  for (const std::string optimizer : {"adamw_torch", "adamw_bnb_8bit"})
    for (const std::string device : {"cpu", "far:0"}) {
      INFO(device << ' ' << optimizer);
      const std::string method = "rl: dpo\noptimizer: " + optimizer + "\n" + pairs;
      auto run = w.config(method, device, "bad");
      run.learning_rate = 1e30;
      fs::remove_all(w.scratch.path() / "bad");
      CHECK(lacks(raised_by([&] { (void)config::train(run); }),
                  {"trainer.31", "is not finite", "step 2", "offending_rows-step-2.jsonl"}) == "");
      CHECK(fs::exists(w.scratch.path() / "bad/offending_rows-step-2.jsonl"));
    }
}

TEST_CASE("a held-out evaluation runs on the device of the configuration") {
  support::far::device();
  const Workshop w;
  const std::string method = "rl: dpo\nval_set_size: 0.3\n" + pairs;
  const auto before = support::far::counts();
  const auto far = config::evaluate(w.config(method, "far:0", "e")),
             cpu = config::evaluate(w.config(method, "cpu", "e"));
  CHECK(support::far::counts().since(before).operators > 100);
  CHECK(far.record.value("eval_loss") == Approx(cpu.record.value("eval_loss")).epsilon(1e-4));
}

// A host read that creeps into a step waits for the device: these numbers rise then. They are of the model of
// examples/quickstart (4 layers), per step.
TEST_CASE("a step on a device reads a known number of values") {
  support::far::device();
  const Workshop w;
  const auto per_step = [&](const std::string& method) {
    const auto count = [&](int steps) {
      std::string text = method;
      text.replace(text.find("max_steps: 2"), 12, "max_steps: " + std::to_string(steps));
      const auto before = support::far::counts();
      (void)w.train(text, "far:0");
      return support::far::counts().since(before);
    };
    support::far::Counts out = count(3).since(count(1));
    for (std::int64_t* number :
         {&out.operators, &out.copies_in, &out.copies_out, &out.scalars, &out.bytes_in, &out.bytes_out})
      *number /= 2;
    return out;
  };
  const auto told = [](const char* name, const support::far::Counts& c) {
    UNSCOPED_INFO(name << ": " << c.operators << " operators, " << c.scalars << " scalars read, " << c.copies_out
                       << " copies to the host (" << c.bytes_out << " bytes), " << c.copies_in << " from it ("
                       << c.bytes_in << " bytes)");
  };
  std::string unpaired = pairs;
  unpaired.replace(unpaired.find("pairs.jsonl"), 11, "unpaired.jsonl");
  const auto dpo = per_step("rl: dpo\n" + pairs), grpo = per_step(online("grpo", "  loss_type: grpo\n")),
             kto = per_step("rl: kto\n" + unpaired), orpo = per_step("rl: orpo\n" + pairs),
             penalised = per_step(online("grpo", "  loss_type: grpo\n  beta: 0.04\n"));
  told("dpo", dpo);
  told("grpo", grpo);
  told("kto", kto);
  told("orpo", orpo);
  told("grpo with a reference", penalised);
  CHECK(dpo.scalars == 0);
  CHECK(grpo.scalars == 0);
  // There: a copy a pass, of the reference and of the policy. Back: once a step; the reference's log-probs stay there.
  CHECK(dpo.copies_in == 4);
  CHECK(dpo.copies_out == 1);
  CHECK(orpo.copies_in == 2);
  CHECK(orpo.copies_out == 1);
  // KTO's baseline is a sum over all ranks that a step begins with: log-ratios of each micro-batch.
  CHECK(kto.copies_out == 3);
  CHECK(kto.scalars + orpo.scalars + penalised.scalars == 0);
  // Of a generation, which may be trained on in several steps and by any rank: once, all of its passes together.
  CHECK(penalised.copies_out == grpo.copies_out + 1);
  CHECK((grpo.copies_out <= 9 && grpo.copies_in <= 12));
  CHECK((dpo.operators > 1000 && dpo.operators <= 4400));
  CHECK((grpo.operators > 1000 && grpo.operators <= 5100));
}
