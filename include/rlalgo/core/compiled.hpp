// What is no template can be compiled once: RLALGO_INLINE stands before the definition of every function that a header
// declares and its detail/…_impl.hpp defines.
//
// Header-only (the default): it is `inline`, and the header includes its own definitions. With RLALGO_COMPILED, which the
// target rlalgo::compiled sets for its users, it is nothing: the definitions are in that library, and users of the
// header neither read nor compile them. All files of a program must agree.
#pragma once

#ifdef RLALGO_COMPILED
#define RLALGO_INLINE
#else
#define RLALGO_INLINE inline
#endif
