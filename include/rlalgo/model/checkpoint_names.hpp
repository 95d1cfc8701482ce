// Names that programs give to the tensors of a decoder, brought to those of this library (weight_names.hpp).
//
//   wrappers   module.x, _orig_mod.x, _fsdp_wrapped_module.x, _checkpoint_wrapped_module.x    → x; all but module. at any place
//   models     P layers.0.input_layernorm.weight tells what stands before the layers: P → model. (nothing where a backbone was
//              saved alone), and where P ends in model., what stands before that goes from every name; mtp.layers.0 are no layers
//   adapters   base_model.model.PATH.lora_A.NAME.weight → without the adapter's NAME; a path without base_model.model. or
//              without model. gets them; model.language_model., the text of a model that sees images, is model.; PATH.modules_to_save.weight → PATH.weight where there is no such tensor
//
// Nothing is renamed by guess: names that do not fit stay as they are, and the loader names them.
//
// Errors: [rlalgo.model.14] two tensors of a model have one name then; [.30] two of an adapter.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rlalgo::model {

using NameMap = std::map<std::string, std::string>;  // name here → name in the files

// `where` names the files in errors.
[[nodiscard]] NameMap model_tensor_names(const std::vector<std::string>& names, const std::string& where);

[[nodiscard]] NameMap adapter_tensor_names(const std::vector<std::string>& names, const std::string& where);

// The name without the components that wrappers add.
[[nodiscard]] std::string without_wrappers(std::string name);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/checkpoint_names_impl.hpp>
#endif
