// The rows of config/methods.hpp that feature matching has: ebft.mode, ebft.advantage_estimator, ebft.embed_method.
#pragma once

#include <string_view>
#include <vector>

namespace rlalgo::config {

enum class MatchingPart { leave_out_pairs, leave_one_out, group_norm, reward };
enum class PoolingPart { last_token, mean_pooling, completion_mean, concat };

// ebft.mode.
struct MatchingMode {
  std::string_view name;
  std::string_view summary;
  std::string_view door;
  std::string_view page;
  bool strided;  // learns from blocks at the anchors of documents; else from completions of prompts
};

// ebft.advantage_estimator.
struct MatchingEstimator {
  std::string_view name;
  std::string_view summary;
  MatchingPart part;
  bool compares = true;  // needs a second sample
};

// ebft.embed_method.
struct PoolingRow {
  std::string_view name;
  PoolingPart part;
  bool blocks = false;  // has a meaning for a block
};

[[nodiscard]] inline const std::vector<MatchingMode>& matching_modes() {
  static const std::vector<MatchingMode> rows = {
      {"structured", "completions of prompts against the answers of the dataset", "ebft.hpp", "ebft.md", false},
      {"strided", "short blocks at every stride of a text against the text itself", "strided_ebft.hpp", "ebft.md",
       true},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<MatchingEstimator>& matching_estimators() {
  static const std::vector<MatchingEstimator> rows = {
      {"rloo", "difference to the others, every term that touches the sample left out", MatchingPart::leave_out_pairs},
      {"rloo_naive", "difference to the mean reward of the others", MatchingPart::leave_one_out},
      {"group_norm", "difference to the mean, divided by the deviation", MatchingPart::group_norm},
      {"reinforce", "the rewards themselves", MatchingPart::reward, false},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<PoolingRow>& poolings() {
  static const std::vector<PoolingRow> rows = {
      {"last_token", PoolingPart::last_token, true},
      {"mean_pooling", PoolingPart::mean_pooling, true},
      {"completion_mean", PoolingPart::completion_mean},
      {"concat", PoolingPart::concat},
  };
  return rows;
}

}  // namespace rlalgo::config
