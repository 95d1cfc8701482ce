#include "engine_lines.hpp"

#include <algorithm>
#include <utility>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/os/clock.hpp>

namespace rlalgo::cli {

namespace {

class EngineLines {
 public:
  // `engine` has room for `batch`.
  EngineLines(const LineModel& model, std::int64_t batch, const EngineTask& task, const inference::EngineConfig& engine)
      : batch_(batch), task_(task), engine_(model.decoder->config(), engine.for_weights(model.decoder->weights())) {
    engine_.scheduler().set_weights(engine_.view(model.decoder->weights()));
  }

  int run() {
    inference::Scheduler& scheduler = engine_.scheduler();
    while (true) {
      if (answers_.print() || scheduler.idle()) answers_.flush();
      take_lines(scheduler);
      if (!scheduler.step() && lines_.ended()) return answers_.finish(lines_);
    }
  }

 private:
  // Those that are there and have room. Without work the first is waited for, and a moment longer for more.
  void take_lines(inference::Scheduler& scheduler) {
    const bool idle = scheduler.idle();
    double wait = idle ? patience : 0.0;
    std::optional<os::Stopwatch> gathering;
    for (std::int64_t lines = 0; lines < 2 * batch_ && unfinished_ < 2 * batch_ && answers_.waiting() < most_waiting;
         ++lines) {
      std::optional<Line> line = lines_.next(wait);
      if (!line) return;
      Answers::Turn& turn = answers_.open(*line);
      answers_.attempt(*line, turn, [&] { start(scheduler, *line, turn); });
      if (!idle) continue;
      if (!gathering) gathering.emplace();
      wait = std::max(0.0, gather_seconds - gathering->seconds());
    }
  }

  void start(inference::Scheduler& scheduler, Line& line, Answers::Turn& turn) {
    parse(line);
    std::optional<EngineWork> work = task_(line, turn);
    if (!work) return turn.end();
    const std::int64_t count = work->request.count;
    work->request.on_end = [this, count, &turn, place = Line{line.number, {}, {}}, answer = std::move(work->answer)](
                               inference::RequestId, inference::RequestResult&& result) {
      unfinished_ -= count;
      answers_.attempt(place, turn, [&] {
        answer(turn, std::move(result));
        turn.end();
      });
    };
    scheduler.submit(std::move(work->request));
    unfinished_ += count;
  }

  std::int64_t batch_, unfinished_ = 0;  // completions
  const EngineTask& task_;
  LineReader lines_;
  Answers answers_;
  inference::DecoderEngine engine_;
};

}  // namespace

int answer_by_engine(const LineModel& model, std::int64_t batch, const EngineTask& task,
                     inference::EngineConfig engine) {
  engine.max_slots = batch;
  engine.pack_weights = true;
  return EngineLines(model, batch, task, engine).run();
}

}  // namespace rlalgo::cli
