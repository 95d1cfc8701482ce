// What a trainer's inputs say of its language model, whatever the method: the policy, how it is saved, the ranks and where weights lie.
#pragma once

#include <filesystem>
#include <memory>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/save.hpp>

namespace rlalgo::assembly {

// Of trainer::OnlineInputs, OfflineInputs, StridedInputs. `model` must outlive the trainer; `sharding` (or null) holds the policy.
template <class Inputs>
void set_model(Inputs& inputs, const LanguageModel& model, const std::shared_ptr<distributed::World>& world,
               const std::shared_ptr<Sharding>& sharding) {
  inputs.policy = model.decoder;
  inputs.save_model = [&model](const std::filesystem::path& to) { model.save(to, model::SavedDtype::computed); };
  inputs.save_output = [&model](const std::filesystem::path& to) { model.save(to, model.output_dtype); };
  inputs.world = world;
  if (sharding != nullptr) inputs.placement = sharding->placement();
}

}  // namespace rlalgo::assembly
