/*
 * Which instructions a guest may use: what the processor has, less what GLIBC_TUNABLES tells to do
 * without (`osmos run --cpu-baseline`), as glibc's own functions do. Where glibc is too old to be
 * asked (before 2.33), all that the processor has.
 */
#ifndef INSTRUCTIONS_H
#define INSTRUCTIONS_H

#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#endif

#ifdef CPU_FEATURE_ACTIVE
#define MAY_USE_AVX2 CPU_FEATURE_ACTIVE(AVX2)
#define MAY_USE_AVX512 CPU_FEATURE_ACTIVE(AVX512F)
#else
#define MAY_USE_AVX2 __builtin_cpu_supports("avx2")
#define MAY_USE_AVX512 __builtin_cpu_supports("avx512f")
#endif

#endif
