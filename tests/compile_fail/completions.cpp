// expect: agents ask a generation server, and assembly::Engine is none
#include <rlalgo/assembly/completions.hpp>

using namespace rlalgo;

#ifdef RLALGO_VALID
using Drawer = assembly::ColocatedServer;
#else
using Drawer = assembly::Engine;
#endif

void open(const assembly::LanguageModel& model, const assembly::Agents& agents) {
  assembly::Completions completions(model, Drawer(), agents);
}
