// A generation while it is made: it is asked for more of itself until it is whole. The one way in which sources, combinators and the
// queue of sampler/prefetch.hpp give completions.
//
//   auto open = source.open({.number = 3, .step = 3});
//   while (!open->whole()) open->pull();            // or: Made made = sampler::finish(*open)
//
// Nothing is made before the first pull(), and what a source knows changes with the last one only: a generation that is given up
// half way is as if it was never asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/sampler/batch.hpp>

namespace rlalgo::sampler {

// Which generation is asked for.
struct GenerationCall {
  std::int64_t number = 0;  // counted over the run; its draws are a function of it
  std::int64_t step = 0;    // the optimizer step that trains on it first; rewards see it
  std::int64_t groups = 0;  // that a pull() finishes, on each rank; 0: it finishes all
  std::vector<std::size_t> prompts =
      {};  // [groups of the generation] indices of the dataset; empty: those of the order
};

// Used by one thread at a time.
class OpenGeneration {
 public:
  OpenGeneration() = default;
  OpenGeneration(const OpenGeneration&) = delete;
  OpenGeneration& operator=(const OpenGeneration&) = delete;
  virtual ~OpenGeneration() = default;

  // Makes the next groups, or waits for them; returns how many episodes are finished. These are the first ones of
  // made().generation, with their rewards, and keep their places in memory. With all of them the rest of made() is there.
  virtual std::size_t pull() = 0;
  // The half of the next pull() that may run while another generation of its source is in the other half, where the source
  // draws_ahead().
  virtual void draw() {}

  [[nodiscard]] Made& made() noexcept { return made_; }
  [[nodiscard]] std::size_t finished() const noexcept { return finished_; }  // what the last pull() returned
  [[nodiscard]] bool whole() const noexcept {
    return made_.generation != nullptr && finished_ == made_.generation->episodes.size();
  }

 protected:
  std::size_t finish_rows(std::size_t rows) noexcept { return finished_ = rows; }
  Made made_;

 private:
  std::size_t finished_ = 0;
};

// What remains of it, in one.
[[nodiscard]] inline Made finish(OpenGeneration& open) {
  while (!open.whole()) open.pull();
  return std::move(open.made());
}

// One that is there already.
class WholeGeneration final : public OpenGeneration {
 public:
  explicit WholeGeneration(Made made) { made_ = std::move(made); }
  std::size_t pull() override { return finish_rows(made_.generation->episodes.size()); }
};

}  // namespace rlalgo::sampler
