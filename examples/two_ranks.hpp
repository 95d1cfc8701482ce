// What lessons 9 and 10 share: a program that starts two ranks of itself, as `rlalgo train --nproc-per-node 2` and torchrun do (a rank
// finds its place in its environment), and compares what they trained with what one process does.
#pragma once

#include <ATen/ATen.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/model/checkpoint_files.hpp>

// `train(directory, world)` writes a model: NAME-two by two ranks, of which rank 0 writes, and NAME-one by one. Returns how far their
// last norms are apart at most; nothing in a process that was one of the two.
template <class Train>
std::optional<double> one_and_two_ranks(char** argv, const std::string& name, Train train) {
  using namespace rlalgo;
  if (const auto place = distributed::place_from_environment()) {
    train(name + "-two", distributed::join_world(*place, 30.0));
    return std::nullopt;
  }
  const auto store = distributed::Store::listen("127.0.0.1", 0);
  const std::string port = std::to_string(store.port());
  for (const char* rank : {"0", "1"})
    if (::fork() == 0) {
      for (const auto& [key, value] : {std::pair("RANK", rank), {"WORLD_SIZE", "2"}, {"MASTER_PORT", port.c_str()}})
        ::setenv(key, value, 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1);
      ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);  // the store is this process's
      ::execv("/proc/self/exe", argv);
      ::_exit(127);
    }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed += status == 0 ? 0 : 1;
  if (failed > 0) throw std::runtime_error("a rank has failed");

  train(name + "-one", std::make_shared<distributed::World>());
  const auto norm = [&](const char* end) { return model::CheckpointFiles(name + end).read("model.norm.weight"); };
  return (norm("-one") - norm("-two")).abs().max().template item<double>();
}
