// expect: the optional member `remember` of this part is declared in its `hooks` and not there, or there and not declared
#include <rlalgo/sampler/rollout_rows.hpp>

using namespace rlalgo;

// Rows of one's own that keep what they were trained with, by another name.
struct Keeping {
  using Row = data::EpisodeRow;
  static constexpr loss::RowKind kind{"keeping"};
  static constexpr sampler::RowHooks hooks{.remember = true};
  static model::TokenTree tree(std::span<const Row* const>, const loss::Needs&) { return {}; }
  static void count(std::span<const Row* const>, const loss::Needs&, loss::Counts&) {}
  static loss::Scored collate(std::span<const Row* const>, const model::Scores&, const loss::Needs&) { return {}; }
  static std::int64_t tokens(const Row&) { return 1; }
#ifdef RLALGO_VALID
  static void remember(std::span<Row* const>, const tensor::Tensor&) {}
#else
  static void remembers(std::span<Row* const>, const tensor::Tensor&) {}
#endif
};
static_assert(sampler::RememberingRows<Keeping>);
