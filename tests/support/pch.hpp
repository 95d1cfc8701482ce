#pragma once
#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "support/catch.hpp"
