// expect: override
#include <rlalgo/run/observer.hpp>

using namespace rlalgo;

// What is called through a virtual function is written with `override`.
struct Watcher : run::Observer {
#ifdef RLALGO_VALID
  void on_step(const run::StepDone&) override {}
#else
  void on_steps(const run::StepDone&) override {}
#endif
};
