// MSO_SIMD_CLONES before a function compiles it for AVX-512, AVX2 and plain x86-64, chosen when the program
// loads. The clones give the same bits because the project is built with -ffp-contract=off.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // sanitizers do not run yet when a clone is chosen
#define MSO_SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default"), optimize("O3")))
#else
#define MSO_SIMD_CLONES
#endif
