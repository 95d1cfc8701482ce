// The draws of a pass, as many at a time as one call of logits() answers, on the threads of the engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/inference/detail/answer.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/sampling.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference::detail {

class DrawBatch {
 public:
  // `width`: rows of logits at a time.
  DrawBatch(Forward& forward, os::ThreadPool& pool, std::int64_t vocab_size, std::int64_t width)
      : forward_(forward),
        pool_(pool),
        vocab_size_(vocab_size),
        width_(static_cast<std::size_t>(width)),
        token_draws_(static_cast<std::size_t>(pool.threads())) {
    rows_.reserve(width_);
  }

  // Requests of up to `count` completions follow: nothing is allocated afterwards.
  void reserve(std::size_t count) { draws_.reserve(width_ + count); }

  // Answers draws from the front of `wanted`, whose rows are those of the pass; how many. The answers are in answers():
  // the first tokens of a request are one of `wanted` and one answer for each completion.
  std::size_t answer(const Forward::Weights& weights, std::span<const Draw> wanted) {
    wanted = wanted.first(std::min(wanted.size(), width_));
    rows_.clear();
    count_ = 0;
    for (const Draw& one : wanted) {
      const std::int64_t copies = one.kind == Draw::Kind::first ? one.request->spec.count : 1;
      for (std::int64_t j = 0; j < copies; ++j) {
        if (count_ == draws_.size()) draws_.emplace_back();
        Draw& draw = draws_[count_++];
        std::vector<TokenLogProb> top = std::move(draw.top);
        draw = one;
        draw.top = std::move(top);
        draw.row = static_cast<std::int64_t>(rows_.size());
        if (copies > 1) draw.completion = j;
      }
      rows_.push_back(one.row);
    }
    forward_.draw(weights, rows_, answers());
    const std::size_t left = leave_unknown();
    if (left == 0) return wanted.size();
    const float* const logits = forward_.logits(weights, rows_);
    const auto task = [&](std::uint32_t i, int thread) {
      if (draws_[i].known) return;
      detail::answer(draws_[i], {logits + draws_[i].row * vocab_size_, static_cast<std::size_t>(vocab_size_)},
                     token_draws_[static_cast<std::size_t>(thread)]);
    };
    const auto count = static_cast<std::uint32_t>(count_);
    if (static_cast<std::int64_t>(left) * vocab_size_ >= 32'768)
      pool_.run(count, task);
    else
      for (std::uint32_t i = 0; i < count; ++i) task(i, 0);
    return wanted.size();
  }

  [[nodiscard]] std::span<Draw> answers() { return std::span(draws_).first(count_); }

 private:
  // How many draws the device has not answered; where it answered some, rows_ keep those of the others.
  std::size_t leave_unknown() {
    std::size_t left = 0;
    for (const Draw& draw : answers()) left += draw.known ? 0U : 1U;
    if (left == count_) return left;
    const std::vector<std::int64_t> all = std::exchange(rows_, {});
    rows_.reserve(width_);
    std::int64_t last = -1;
    for (Draw& draw : answers()) {
      if (draw.known) continue;
      if (std::exchange(last, draw.row) != draw.row) rows_.push_back(all[static_cast<std::size_t>(draw.row)]);
      draw.row = static_cast<std::int64_t>(rows_.size()) - 1;
    }
    return left;
  }

  Forward& forward_;
  os::ThreadPool& pool_;
  std::int64_t vocab_size_;
  std::size_t width_, count_ = 0;
  std::vector<Draw> draws_;  // the first count_ are in use
  std::vector<std::int64_t> rows_;
  std::vector<TokenDraw> token_draws_;  // per thread
};

}  // namespace rlalgo::inference::detail
