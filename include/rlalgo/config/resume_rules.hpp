// Which settings may differ between a checkpoint and the run that goes on from it.
//
// What a resume compares are all effective values of a configuration (RunConfig::settings) and what config/fingerprints.hpp
// adds. A key whose row gives no reason (config/key.hpp) changes what is computed: a difference is an error that names it.
#pragma once

#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config {

[[nodiscard]] inline run::ResumeRules resume_rules(const RunConfig& c) {
  // A run that goes on has the world around it of its checkpoint; what is made of it is compared by content.
  run::ResumeRules out{.free = {"outside"}, .extended = {}, .force = c.force_resume};
  for (const Key& row : every_key())
    if (!row.resume.why.empty() && !(row.resume.evaluates && c.lr_scheduler == "reduce_lr_on_plateau"))
      (row.resume.stretches ? out.extended : out.free).emplace(row.name);
  return out;
}

}  // namespace rlalgo::config
