// Which experts tokens pass, noted in the pages of their keys and values: two bytes for each expert of each layer that has any, the
// likeliest first. So completions that share a prompt, prefixes of earlier calls and sequences that are computed again have their notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference::detail {

class ExpertNotes {
 public:
  explicit ExpertNotes(const model::DecoderConfig& config) {
    for (std::int64_t l = 0; l < config.layers; ++l) {
      first_.push_back(width_);
      if (config.spec(l).experts.count > 0) width_ += config.spec(l).experts.chosen;
    }
  }

  [[nodiscard]] std::int64_t bytes() const { return 2 * width_; }
  // From the beginning of a position's note.
  [[nodiscard]] std::int64_t offset(std::int64_t layer) const { return 2 * first_[static_cast<std::size_t>(layer)]; }

  // Of a layer: `experts`.expert(row, number, chosen) is what each row passed.
  template <class Experts>
  void write(const KvCache& cache, std::span<const Row> rows, std::int64_t layer, std::int64_t chosen,
             const Experts& experts) const {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t position = rows[i].position;
      std::byte* to = rows[i].pages[position / cpu::page_positions] + cache.note_offset(position) + offset(layer);
      for (std::int64_t j = 0; j < chosen; ++j, to += 2) {
        const auto expert = static_cast<std::uint16_t>(experts.expert(static_cast<std::int64_t>(i), j, chosen));
        std::memcpy(to, &expert, sizeof expert);
      }
    }
  }

 private:
  std::vector<std::int64_t> first_;
  std::int64_t width_ = 0;
};

// The notes of the first `length` positions of a sequence.
[[nodiscard]] inline std::vector<std::uint16_t> notes_of(const KvCache& cache, const KvCache::Sequence& sequence,
                                                         std::int64_t length) {
  const auto width = static_cast<std::size_t>(cache.note_bytes() / 2);
  std::vector<std::uint16_t> out(width * static_cast<std::size_t>(length));
  for (std::int64_t p = 0; p < length; ++p)
    std::memcpy(out.data() + width * static_cast<std::size_t>(p),
                sequence.pages[static_cast<std::size_t>(p / cpu::page_positions)] + cache.note_offset(p), 2 * width);
  return out;
}

// Into the completion of a slot: of all its tokens but the last, which was drawn and not computed.
inline void note_experts(const KvCache& cache, const Slot& slot) {
  data::Completion& completion = slot.request->completion(slot.completion);
  completion.routed_experts =
      notes_of(cache, slot.sequence.length > 0 ? slot.sequence : slot.request->prompt,
               slot.request->prompt_size() + static_cast<std::int64_t>(completion.ids.size()) - 1);
}

}  // namespace rlalgo::inference::detail
