// Generates with the trainer's own weights: a KV cache, continuous batching, one copy of a prompt for all its
// completions.
//
// The engine reads the weight tensors where they are at every call of generate(), so an optimizer that updates them in
// place needs no synchronisation; `weights` must outlive the engine. f32 weights are computed with as they are; bf16
// weights are widened in the inner loop; activations and cache are always f32.
//
// Reproducibility: each logit is computed by a sequence of operations that depends only on the weights and the tokens
// before it, and each draw only on (seed, step, completion index, position). So tokens and log-probs are the same bits
// whatever the number of threads or slots, the other requests, and their order; on one kind of CPU.
//
// A request may bring its completion (Request::given): then the same passes say what its tokens' log-probs are.
//
// A completion ends with a stop id (kept), at max_new_tokens, or when prompt and completion reach
// max_position_embeddings (Finish::length), or when the caller cancels (Finish::aborted, what there was is kept).
//
// Errors: [rlalgo.inference.1] a prompt leaves no room for a completion; [.2] an empty prompt; [.3] an id outside the
// vocabulary; [.4] a sampling setting out of range; [.5] logits that are not finite; [.6] a weight tensor that cannot
// be read; [.7] an engine setting out of range.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/thread_pool.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/decoder_forward.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/sampling.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

struct EngineConfig {
  std::int64_t max_slots = 32;     // completions decoded at the same time
  std::int64_t prefill_rows = 64;  // prompt tokens added to one pass
  int threads = 0;                 // at most so many, as the size of the work asks for; 0 = as many as LibTorch may use
};

// What a caller may watch and stop while generate() runs. Both are called on the thread of generate().
struct GenerateHooks {
  struct Token {
    std::size_t request;
    std::int64_t completion;  // in [0, count)
    data::TokenId id;
    float log_prob;
  };
  std::function<void(const Token&)> on_token;  // each token as soon as it is drawn
  std::function<bool()> cancelled;             // asked once per token step; true ends all completions as aborted
};

class LocalEngine {
 public:
  using Config = EngineConfig;

  LocalEngine(const model::DecoderConfig& decoder, const model::DecoderWeights& weights, EngineConfig engine = {})
      : decoder_(decoder),
        weights_(weights),
        engine_(checked(engine)),
        pool_(engine_.threads > 0 ? engine_.threads : at::get_num_threads()),
        cache_(decoder.layers, decoder.kv_heads, decoder.head_dim),
        forward_(decoder_, cache_, pool_, engine_.max_slots + engine_.prefill_rows),
        slots_(static_cast<std::size_t>(engine_.max_slots)),
        draws_(static_cast<std::size_t>(pool_.threads())),
        selected_(engine_.max_slots, decoder.hidden_size) {}
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return decoder_; }

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key, const GenerateHooks& hooks = {}) {
    validate(requests, sampling);
    Call call{requests, sampling, key, hooks, detail::DecoderViewer(decoder_, weights_).view(), {}, {}};
    start(call);
    try {
      while (admit(call)) {
        if (hooks.cancelled && hooks.cancelled()) {
          abort(call);
          break;
        }
        collect_rows(call);
        select_hidden(call, forward_.run(call.view, rows_));
        if (slot_of_draw_.empty()) continue;
        forward_.head(call.view, selected_, selected_count_, logits_.data());
        draw(call);
        accept(call);
      }
    } catch (...) {
      clear(call);
      throw;
    }
    clear(call);
    return std::move(call.completions);
  }

 private:
  // A request in work: its prompt in the cache, shared by its completions.
  struct Prompt {
    KvCache::Sequence sequence;      // filled up to sequence.length
    std::vector<float> last_hidden;  // [H] once the whole prompt is in the cache
    std::int64_t started = 0;        // completions that have a slot, or had one
    std::int64_t forked = 0;         // completions that continue the prompt on their own, or ended at once
    bool complete = false;
    std::int64_t selected = -1;  // row of selected_ in this pass
  };
  struct Slot {
    bool busy = false;
    bool decoding = false;  // has drawn a token that is not in the cache yet
    std::size_t request = 0;
    std::int64_t completion = 0;
    KvCache::Sequence sequence;
    std::int64_t row = -1;     // in this pass
    std::int64_t logits = -1;  // row of logits_ in this pass
    Drawn drawn;
  };
  struct Call {
    std::span<const Request> requests;
    const SamplingConfig& sampling;
    DrawKey key;
    const GenerateHooks& hooks;
    detail::DecoderView view;
    std::vector<std::vector<data::Completion>> completions;
    std::vector<Prompt> prompts;
    std::size_t next_request = 0;
    std::size_t first_prompt = 0;  // requests before it have their prompt in the cache
  };

  static EngineConfig checked(EngineConfig engine) {
    const auto require = [](bool good, const char* name, std::int64_t value, const char* expected) {
      if (!good)
        core::raise_usage("inference", 7,
                          {.what = std::string("engine setting ") + name + " is out of range",
                           .found = std::to_string(value),
                           .expected = expected});
    };
    require(engine.max_slots >= 1 && engine.max_slots <= 4096, "max_slots", engine.max_slots, "1 to 4096");
    require(engine.prefill_rows >= 1 && engine.prefill_rows <= 4096, "prefill_rows", engine.prefill_rows, "1 to 4096");
    require(engine.threads >= 0 && engine.threads <= 1024, "threads", engine.threads, "0 (automatic) to 1024");
    return engine;
  }

  void validate(std::span<const Request> requests, const SamplingConfig& sampling) const {
    check(sampling);
    for (const data::TokenId id : sampling.stop_ids) check_id(id, "stop_ids");
    for (std::size_t r = 0; r < requests.size(); ++r) {
      const std::string where = "request " + std::to_string(r);
      const std::int64_t length = static_cast<std::int64_t>(requests[r].prompt.size());
      if (length == 0)
        core::raise("inference", 2, {.what = "a prompt is empty", .expected = "at least one token", .where = where});
      if (length >= decoder_.max_position_embeddings)
        core::raise(
            "inference", 1,
            {.what = "a prompt leaves no room for a completion",
             .found = std::to_string(length) + " tokens",
             .expected = "fewer than max_position_embeddings = " + std::to_string(decoder_.max_position_embeddings),
             .where = where,
             .remedy = "shorten the prompt or drop the row"});
      for (const data::TokenId id : requests[r].prompt) check_id(id, where);
      for (const data::TokenId id : requests[r].given) check_id(id, where);
      if (length + static_cast<std::int64_t>(requests[r].given.size()) > decoder_.max_position_embeddings)
        core::raise("inference", 1,
                    {.what = "a prompt leaves no room for the completion given",
                     .found = std::to_string(length) + " and " + std::to_string(requests[r].given.size()) + " tokens",
                     .expected = "together at most max_position_embeddings = " +
                                 std::to_string(decoder_.max_position_embeddings),
                     .where = where,
                     .remedy = "shorten the row or drop it"});
    }
  }

  void check_id(data::TokenId id, const std::string& where) const {
    if (id < 0 || id >= decoder_.vocab_size)
      core::raise("inference", 3,
                  {.what = "a token id is outside the model's vocabulary",
                   .found = std::to_string(id),
                   .expected = "0 to " + std::to_string(decoder_.vocab_size - 1),
                   .where = where,
                   .remedy = "use the tokenizer that belongs to the model"});
  }

  [[nodiscard]] std::int64_t room(const Call& call, std::size_t request) const {
    const std::int64_t prompt = static_cast<std::int64_t>(call.requests[request].prompt.size());
    if (const std::size_t given = call.requests[request].given.size(); given > 0)
      return static_cast<std::int64_t>(given);
    const std::int64_t own = call.requests[request].max_new_tokens;
    const std::int64_t limit = own > 0 ? std::min(own, call.sampling.max_new_tokens) : call.sampling.max_new_tokens;
    return std::min(limit, decoder_.max_position_embeddings - prompt);
  }

  void start(Call& call) {
    call.completions.resize(call.requests.size());
    call.prompts.resize(call.requests.size());
    std::int64_t longest = 0;
    for (std::size_t r = 0; r < call.requests.size(); ++r) {
      const std::int64_t count = std::max<std::int64_t>(0, call.requests[r].count);
      call.completions[r].resize(static_cast<std::size_t>(count));
      for (data::Completion& c : call.completions[r]) {
        c.ids.reserve(static_cast<std::size_t>(std::min<std::int64_t>(room(call, r), 4096)));
        c.log_probs.reserve(c.ids.capacity());
      }
      const std::int64_t prompt = static_cast<std::int64_t>(call.requests[r].prompt.size());
      longest = std::max(longest, prompt + room(call, r));
      call.prompts[r].sequence.pages.reserve(pages_for(prompt));
      call.prompts[r].last_hidden.reserve(static_cast<std::size_t>(decoder_.hidden_size));
    }
    forward_.reserve(longest);
    const std::size_t wide = static_cast<std::size_t>(engine_.max_slots);
    logits_.resize(wide * static_cast<std::size_t>(decoder_.vocab_size));
    rows_.reserve(static_cast<std::size_t>(engine_.max_slots + engine_.prefill_rows));
    slot_of_draw_.reserve(wide);
    prompt_ends_.reserve(static_cast<std::size_t>(engine_.prefill_rows));
    for (Slot& slot : slots_) slot.sequence.pages.reserve(pages_for(longest));
  }

  static std::size_t pages_for(std::int64_t positions) {
    return static_cast<std::size_t>((positions + detail::page_positions - 1) / detail::page_positions);
  }

  // Gives free slots to the next completions; false when all completions are done.
  bool admit(Call& call) {
    bool busy = false;
    for (Slot& slot : slots_) {
      while (call.next_request < call.requests.size() &&
             call.prompts[call.next_request].started ==
                 static_cast<std::int64_t>(call.completions[call.next_request].size()))
        ++call.next_request;
      if (!slot.busy && call.next_request < call.requests.size()) {
        slot.busy = true;
        slot.decoding = false;
        slot.request = call.next_request;
        slot.completion = call.prompts[call.next_request].started++;
      }
      busy = busy || slot.busy;
    }
    return busy;
  }

  // The rows of this pass: the last token of every decoding slot, then prompt tokens of requests that have slots.
  void collect_rows(Call& call) {
    rows_.clear();
    for (Slot& slot : slots_) {
      if (!slot.busy || !slot.decoding) continue;
      slot.row = static_cast<std::int64_t>(rows_.size());
      const std::int64_t position = slot.sequence.length;
      cache_.extend(slot.sequence, 1);
      rows_.push_back({slot.drawn.id, position, slot.sequence.pages.data()});
    }
    prompt_ends_.clear();
    std::int64_t budget = engine_.prefill_rows;
    for (std::size_t r = call.first_prompt; r < call.prompts.size() && budget > 0; ++r) {
      Prompt& prompt = call.prompts[r];
      if (prompt.started == 0) {
        if (call.completions[r].empty() && r == call.first_prompt) ++call.first_prompt;
        if (call.completions[r].empty()) continue;
        break;
      }
      const std::vector<data::TokenId>& ids = call.requests[r].prompt;
      const std::int64_t begin = prompt.sequence.length;
      const std::int64_t take = std::min(budget, static_cast<std::int64_t>(ids.size()) - begin);
      cache_.extend(prompt.sequence, take);
      for (std::int64_t i = 0; i < take; ++i)
        rows_.push_back({ids[static_cast<std::size_t>(begin + i)], begin + i, prompt.sequence.pages.data()});
      budget -= take;
      if (begin + take < static_cast<std::int64_t>(ids.size())) break;
      prompt_ends_.push_back({r, static_cast<std::int64_t>(rows_.size()) - 1});
      call.first_prompt = r + 1;
    }
  }

  // Copies the hidden states that predict a token in this pass; completions that start share their prompt's.
  void select_hidden(Call& call, detail::Activations& hidden) {
    for (const auto& [request, row] : prompt_ends_) {
      call.prompts[request].last_hidden.assign(hidden.row(row), hidden.row(row) + decoder_.hidden_size);
      call.prompts[request].complete = true;
    }
    selected_count_ = 0;
    slot_of_draw_.clear();
    for (Prompt& prompt : std::span(call.prompts).first(call.first_prompt)) prompt.selected = -1;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      Slot& slot = slots_[s];
      if (!slot.busy) continue;
      Prompt& prompt = call.prompts[slot.request];
      if (slot.decoding) {
        slot.logits = select(hidden.row(slot.row));
      } else if (prompt.complete) {
        if (prompt.selected < 0) prompt.selected = select(prompt.last_hidden.data());
        slot.logits = prompt.selected;
      } else {
        continue;
      }
      slot_of_draw_.push_back(s);
    }
  }

  std::int64_t select(const float* hidden) {
    std::copy_n(hidden, decoder_.hidden_size, selected_.row(selected_count_));
    return selected_count_++;
  }

  void draw(Call& call) {
    const auto one = [&](std::uint32_t task, int thread) {
      Slot& slot = slots_[slot_of_draw_[task]];
      const data::Completion& completion = completion_of(call, slot);
      const Request& request = call.requests[slot.request];
      const std::span<const float> row(logits_.data() + slot.logits * decoder_.vocab_size,
                                       static_cast<std::size_t>(decoder_.vocab_size));
      TokenDraw& token_draw = draws_[static_cast<std::size_t>(thread)];
      if (!request.given.empty()) {
        slot.drawn = token_draw.given(row, call.sampling.temperature, request.given[completion.ids.size()]);
        return;
      }
      const double u = draw_uniform(call.key, request.first_index + static_cast<std::uint64_t>(slot.completion),
                                    request.first_position + static_cast<std::uint32_t>(completion.ids.size()));
      slot.drawn = token_draw(row, call.sampling, request.prompt, completion.ids, u);
    };
    const std::uint32_t count = static_cast<std::uint32_t>(slot_of_draw_.size());
    if (count * decoder_.vocab_size >= 32'768)
      pool_.run(count, one);
    else
      for (std::uint32_t task = 0; task < count; ++task) one(task, 0);
  }

  static data::Completion& completion_of(Call& call, const Slot& slot) {
    return call.completions[slot.request][static_cast<std::size_t>(slot.completion)];
  }

  // Appends the drawn tokens; ended completions free their slots.
  void accept(Call& call) {
    for (const std::size_t s : slot_of_draw_) {
      Slot& slot = slots_[s];
      data::Completion& completion = completion_of(call, slot);
      completion.ids.push_back(slot.drawn.id);
      completion.log_probs.push_back(slot.drawn.log_prob);
      if (call.hooks.on_token) call.hooks.on_token({slot.request, slot.completion, slot.drawn.id, slot.drawn.log_prob});
      const bool stopped = call.requests[slot.request].given.empty() &&
                           std::find(call.sampling.stop_ids.begin(), call.sampling.stop_ids.end(), slot.drawn.id) !=
                               call.sampling.stop_ids.end();
      const bool ended = stopped || static_cast<std::int64_t>(completion.ids.size()) >= room(call, slot.request);
      if (!slot.decoding) fork(call, slot, ended);
      slot.decoding = true;
      if (!ended) continue;
      completion.finish = stopped ? data::Finish::stop : data::Finish::length;
      cache_.release(slot.sequence);
      slot.busy = false;
    }
  }

  // The slot continues its prompt on its own; the last completion of a request takes the prompt's pages over.
  void fork(Call& call, Slot& slot, bool ended) {
    Prompt& prompt = call.prompts[slot.request];
    const bool last = ++prompt.forked == static_cast<std::int64_t>(call.completions[slot.request].size());
    if (last)
      cache_.transfer(prompt.sequence, slot.sequence);
    else if (!ended)
      cache_.fork(prompt.sequence, slot.sequence);
  }

  void abort(Call& call) {
    for (std::size_t r = 0; r < call.completions.size(); ++r)
      for (std::size_t j = 0; j < call.completions[r].size(); ++j) {
        const bool started = static_cast<std::int64_t>(j) < call.prompts[r].started;
        const bool running = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
          return slot.busy && slot.request == r && slot.completion == static_cast<std::int64_t>(j);
        });
        if (!started || running) call.completions[r][j].finish = data::Finish::aborted;
      }
  }

  void clear(Call& call) {
    for (Slot& slot : slots_) {
      cache_.release(slot.sequence);
      slot.busy = false;
    }
    for (Prompt& prompt : call.prompts) cache_.release(prompt.sequence);
  }

  model::DecoderConfig decoder_;
  const model::DecoderWeights& weights_;
  EngineConfig engine_;
  core::ThreadPool pool_;
  KvCache cache_;
  detail::DecoderForward forward_;
  std::vector<Slot> slots_;
  std::vector<TokenDraw> draws_;                                   // per thread
  std::vector<detail::Row> rows_;                                  // of this pass
  std::vector<std::pair<std::size_t, std::int64_t>> prompt_ends_;  // (request, row) of prompts completed in this pass
  std::vector<std::size_t> slot_of_draw_;
  detail::Activations selected_;  // [max_slots, H]
  std::int64_t selected_count_ = 0;
  std::vector<float> logits_;  // [max_slots, V]
};

}  // namespace rlalgo::inference
