// Every door: one include for a program that chooses its method in code.
//
// A file that uses one method compiles faster with that method's door alone.
#pragma once

#include <rlalgo/bnpo.hpp>
#include <rlalgo/cispo.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/cpo.hpp>
#include <rlalgo/dapo.hpp>
#include <rlalgo/dpo.hpp>
#include <rlalgo/dr_grpo.hpp>
#include <rlalgo/ebft.hpp>
#include <rlalgo/gdpo.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/gspo.hpp>
#include <rlalgo/ipo.hpp>
#include <rlalgo/kto.hpp>
#include <rlalgo/luspo.hpp>
#include <rlalgo/orpo.hpp>
#include <rlalgo/reinforce_pp.hpp>
#include <rlalgo/rloo.hpp>
#include <rlalgo/sapo.hpp>
#include <rlalgo/simpo.hpp>
#include <rlalgo/strided_ebft.hpp>
#include <rlalgo/vespo.hpp>
