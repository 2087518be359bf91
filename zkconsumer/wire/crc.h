/* CRC-32 (as in zlib; formats 0 and 1) and CRC-32C (format 2), with instructions of the processor if it has them.
 *
 * Plain C11 without Python.h.  The caller owns what `zk_crc_init` and `zk_crc_fill_tables` fill; there is no static mutable
 * state.
 *
 * Without instructions: sixteen tables, sixteen bytes per step (Kounavis and Berry, "slicing").  x86-64: carry-less
 * multiplication (Gopal et al., "Fast CRC computation for generic polynomials"), and the SSE4.2 instruction for CRC-32C of
 * few bytes; with AVX-512, four such multiplications per instruction.  ARMv8: one instruction for each of the two. */

#ifndef ZKCONSUMER_CRC_H
#define ZKCONSUMER_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define ZK_X86 1
#include <immintrin.h>
#if defined(__clang__) || __GNUC__ >= 9
#define ZK_X86_WIDE 1
#endif
#endif

#if defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#define ZK_ARM 1
#include <arm_acle.h>
#ifdef __linux__
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif
#endif

/* Requests the memory that many bytes after an address, which may be after the end of a buffer: a processor ignores an address
 * without memory.  The sum is an integer, since C has no pointers there. */
#if defined(__GNUC__) || defined(__clang__)
#define zk_request(from, bytes) __builtin_prefetch((const void *)((uintptr_t)(from) + (uintptr_t)(bytes)))
#else
#define zk_request(from, bytes) (void)(bytes)
#endif

#define ZK_SLICES 16
#define ZK_CRC32_POLYNOMIAL 0xEDB88320u
#define ZK_CRC32C_POLYNOMIAL 0x82F63B78u

typedef struct {
    uint32_t crc32[ZK_SLICES][256];
    uint32_t crc32c[ZK_SLICES][256];
} zk_crc_tables;

typedef struct zk_crc {
    uint32_t (*crc32)(const struct zk_crc *crc, const uint8_t *at, size_t bytes);
    uint32_t (*crc32c)(const struct zk_crc *crc, const uint8_t *at, size_t bytes);
    const char *crc32_by; /* "tables", or the name of the instruction */
    const char *crc32c_by;
    const zk_crc_tables *tables;
} zk_crc;

/* --- tables ------------------------------------------------------------------------------------------------------- */

static void zk_crc_fill(uint32_t tables[ZK_SLICES][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        tables[0][byte] = crc;
    }
    for (int slice = 1; slice < ZK_SLICES; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
}

static void zk_crc_fill_tables(zk_crc_tables *tables) {
    zk_crc_fill(tables->crc32, ZK_CRC32_POLYNOMIAL);
    zk_crc_fill(tables->crc32c, ZK_CRC32C_POLYNOMIAL);
}

/* Continues from `crc`, which is not inverted here. */
static uint32_t zk_crc_sliced(const uint32_t tables[ZK_SLICES][256], uint32_t crc, const uint8_t *at, size_t bytes) {
    for (; bytes >= ZK_SLICES; at += ZK_SLICES, bytes -= ZK_SLICES) {
        uint8_t block[ZK_SLICES];
        memcpy(block, at, ZK_SLICES);
        for (int byte = 0; byte < 4; byte++) block[byte] ^= (uint8_t)(crc >> 8 * byte);
        crc = 0;
        for (int byte = 0; byte < ZK_SLICES; byte++) crc ^= tables[ZK_SLICES - 1 - byte][block[byte]];
    }
    if (bytes >= 8) {
        uint8_t block[8];
        memcpy(block, at, 8);
        for (int byte = 0; byte < 4; byte++) block[byte] ^= (uint8_t)(crc >> 8 * byte);
        crc = 0;
        for (int byte = 0; byte < 8; byte++) crc ^= tables[7 - byte][block[byte]];
        at += 8;
        bytes -= 8;
    }
    for (; bytes; bytes--) crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xFF];
    return crc;
}

static uint32_t zk_crc32_sliced(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    return ~zk_crc_sliced(crc->tables->crc32, 0xFFFFFFFFu, at, bytes);
}

static uint32_t zk_crc32c_sliced(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    return ~zk_crc_sliced(crc->tables->crc32c, 0xFFFFFFFFu, at, bytes);
}

/* --- x86-64 ------------------------------------------------------------------------------------------------------- */

#ifdef ZK_X86

/* Continues from `start`, which is not inverted here. */
__attribute__((target("sse4.2"))) static inline uint32_t zk_crc32c_of(uint32_t start, const uint8_t *at, size_t bytes) {
    uint64_t found = start;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        found = _mm_crc32_u64(found, word);
    }
    uint32_t rest = (uint32_t)found;
    if (bytes >= 4) {
        uint32_t word;
        memcpy(&word, at, 4);
        rest = _mm_crc32_u32(rest, word);
        at += 4;
        bytes -= 4;
    }
    for (; bytes; bytes--) rest = _mm_crc32_u8(rest, *at++);
    return rest;
}

__attribute__((target("sse4.2"))) static uint32_t zk_crc32c_sse42(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    (void)crc;
    return ~zk_crc32c_of(0xFFFFFFFFu, at, bytes);
}

/* x^n mod P in the reflected order of bits, for the distances in bits over which 128 bits are folded. */
typedef struct {
    uint64_t by_256_low;  /* n = 2048 + 32 */
    uint64_t by_256_high; /* n = 2048 - 32 */
    uint64_t by_64_low;   /* n = 512 + 32 */
    uint64_t by_64_high;  /* n = 512 - 32 */
    uint64_t by_16_low;   /* n = 128 + 32 */
    uint64_t by_16_high;  /* n = 128 - 32 */
} zk_folds;

static const zk_folds ZK_CRC32_FOLDS = {0x11542778A, 0x1322D1430, 0x154442BD4, 0x1C6E41596, 0x1751997D0, 0x0CCAA009E};
static const zk_folds ZK_CRC32C_FOLDS = {0x0DCB17AA4, 0x0B9E02B86, 0x0740EEF02, 0x09E4ADDF8, 0x0F20C0DFE, 0x14CD00BD6};

/* For the last step of CRC-32, reflected too: x^64 mod P; x^64 div P; P. */
#define ZK_CRC32_X64 0x163CD6124
#define ZK_CRC32_QUOTIENT 0x1F7011641
#define ZK_CRC32_P 0x1DB710641

#define ZK_FOLDED_BYTES_MIN 32

/* The bytes may be in the cache of another processor, or only in that of all of them: they are requested this early.  So are
 * the first bytes after these, which are mostly those of the next batch. */
#define ZK_FOLDED_AHEAD_BYTES 4096
#define ZK_PCLMUL_CRC32C_BYTES_MIN 256

#define ZK_WITH_PCLMUL __attribute__((target("sse4.2,pclmul")))

ZK_WITH_PCLMUL static inline __m128i zk_fold(__m128i sum, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

#define NONE 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80

/* A shuffle that starts at `n` moves the first n of sixteen bytes to the end.  One that starts at 16 + n moves all bytes
 * except the first n to the front. */
static const uint8_t ZK_MOVED[48] = {NONE, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, NONE};

#undef NONE

/* Returns sixteen bytes with the same remainder as `sum` with the `bytes` bytes at `at` after it. */
ZK_WITH_PCLMUL static inline __m128i zk_folded_rest(const zk_folds *folds, __m128i sum, const uint8_t *at, size_t bytes) {
    const __m128i by_16 = _mm_set_epi64x((int64_t)folds->by_16_high, (int64_t)folds->by_16_low);
    for (; bytes >= 16; at += 16, bytes -= 16) sum = zk_fold(sum, by_16, _mm_loadu_si128((const __m128i *)at));
    if (bytes) {
        __m128i to_end = _mm_loadu_si128((const __m128i *)(ZK_MOVED + bytes));
        __m128i to_front = _mm_loadu_si128((const __m128i *)(ZK_MOVED + 16 + bytes));
        __m128i last = _mm_loadu_si128((const __m128i *)(at + bytes - 16));
        last = _mm_and_si128(last, _mm_cmpgt_epi8(to_end, _mm_set1_epi8(-1)));
        last = _mm_or_si128(last, _mm_shuffle_epi8(sum, to_front));
        sum = zk_fold(_mm_shuffle_epi8(sum, to_end), by_16, last);
    }
    return sum;
}

/* Returns sixteen bytes with the same remainder as all `bytes` bytes at `at`, with the initial value (all ones).  `bytes`
 * is at least ZK_FOLDED_BYTES_MIN. */
ZK_WITH_PCLMUL static inline __m128i zk_folded(const zk_folds *folds, const uint8_t *at, size_t bytes) {
    const __m128i by_16 = _mm_set_epi64x((int64_t)folds->by_16_high, (int64_t)folds->by_16_low);
    __m128i sum = _mm_loadu_si128((const __m128i *)at);
    sum = _mm_xor_si128(sum, _mm_cvtsi32_si128(-1));
    at += 16;
    bytes -= 16;
    if (bytes >= 112) {
        const __m128i by_64 = _mm_set_epi64x((int64_t)folds->by_64_high, (int64_t)folds->by_64_low);
        __m128i sum_1 = _mm_loadu_si128((const __m128i *)at), sum_2 = _mm_loadu_si128((const __m128i *)(at + 16));
        __m128i sum_3 = _mm_loadu_si128((const __m128i *)(at + 32));
        for (at += 48, bytes -= 48; bytes >= 64; at += 64, bytes -= 64) {
            zk_request(at, ZK_FOLDED_AHEAD_BYTES);
            sum = zk_fold(sum, by_64, _mm_loadu_si128((const __m128i *)at));
            sum_1 = zk_fold(sum_1, by_64, _mm_loadu_si128((const __m128i *)(at + 16)));
            sum_2 = zk_fold(sum_2, by_64, _mm_loadu_si128((const __m128i *)(at + 32)));
            sum_3 = zk_fold(sum_3, by_64, _mm_loadu_si128((const __m128i *)(at + 48)));
        }
        sum = zk_fold(sum, by_16, sum_1);
        sum = zk_fold(sum, by_16, sum_2);
        sum = zk_fold(sum, by_16, sum_3);
    }
    return zk_folded_rest(folds, sum, at, bytes);
}

/* The CRC-32 of sixteen bytes, without a table (Barrett reduction, the last step of Gopal et al.). */
ZK_WITH_PCLMUL static inline uint32_t zk_crc32_of_16(__m128i sum) {
    const __m128i low_32 = _mm_set_epi32(0, -1, 0, -1);
    /* 128 bits to 64: x^96 mod P, then x^64 mod P. */
    sum = _mm_xor_si128(
        _mm_clmulepi64_si128(sum, _mm_cvtsi64_si128((int64_t)ZK_CRC32_FOLDS.by_16_high), 0x00), _mm_srli_si128(sum, 8));
    sum = _mm_xor_si128(
        _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), _mm_cvtsi64_si128(ZK_CRC32_X64), 0x00), _mm_srli_si128(sum, 4));
    /* 64 bits to 32. */
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), _mm_cvtsi64_si128(ZK_CRC32_QUOTIENT), 0x00);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), _mm_cvtsi64_si128(ZK_CRC32_P), 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1);
}

ZK_WITH_PCLMUL static uint32_t zk_crc32_pclmul(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    if (bytes < ZK_FOLDED_BYTES_MIN) return zk_crc32_sliced(crc, at, bytes);
    return ~zk_crc32_of_16(zk_folded(&ZK_CRC32_FOLDS, at, bytes));
}

ZK_WITH_PCLMUL static inline uint32_t zk_crc32c_of_16(__m128i sum) {
    uint64_t found = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return (uint32_t)_mm_crc32_u64(found, (uint64_t)_mm_extract_epi64(sum, 1));
}

/* Each SSE4.2 instruction waits for the result of the one before: from some hundred bytes on, folding is twice as fast. */
ZK_WITH_PCLMUL static uint32_t zk_crc32c_pclmul(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    (void)crc;
    if (bytes < ZK_PCLMUL_CRC32C_BYTES_MIN) return ~zk_crc32c_of(0xFFFFFFFFu, at, bytes);
    return ~zk_crc32c_of_16(zk_folded(&ZK_CRC32C_FOLDS, at, bytes));
}

#ifdef ZK_X86_WIDE

#define ZK_WIDE_BYTES_MIN 512

/* The truth table of three operands; a macro, because clang takes no variable here. */
#define ZK_EXCLUSIVE_OR 0x96

#define ZK_WITH_WIDE __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

ZK_WITH_WIDE static inline __m512i zk_fold_wide(__m512i sum, __m512i by, const uint8_t *next) {
    __m512i low = _mm512_clmulepi64_epi128(sum, by, 0x00), high = _mm512_clmulepi64_epi128(sum, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(next), ZK_EXCLUSIVE_OR);
}

/* As `zk_folded`, for at least ZK_WIDE_BYTES_MIN bytes. */
ZK_WITH_WIDE static inline __m128i zk_folded_wide(const zk_folds *folds, const uint8_t *at, size_t bytes) {
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)folds->by_256_high, (int64_t)folds->by_256_low));
    __m512i sums[4]; /* in registers, if the loops are unrolled: gcc does that from -O3 on */
#pragma GCC unroll 4
    for (int each = 0; each < 4; each++) sums[each] = _mm512_loadu_si512(at + 64 * each);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128(-1), 0));
    for (at += 256, bytes -= 256; bytes >= 256; at += 256, bytes -= 256) {
#pragma GCC unroll 4
        for (int each = 0; each < 4; each++) {
            zk_request(at, ZK_FOLDED_AHEAD_BYTES + 64 * each);
            sums[each] = zk_fold_wide(sums[each], by_256, at + 64 * each);
        }
    }
    uint8_t folded[256];
#pragma GCC unroll 4
    for (int each = 0; each < 4; each++) _mm512_storeu_si512(folded + 64 * each, sums[each]);
    __m128i sum = _mm_loadu_si128((const __m128i *)folded);
    return zk_folded_rest(folds, zk_folded_rest(folds, sum, folded + 16, sizeof folded - 16), at, bytes);
}

ZK_WITH_WIDE static uint32_t zk_crc32_wide(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    if (bytes < ZK_WIDE_BYTES_MIN) return zk_crc32_pclmul(crc, at, bytes);
    return ~zk_crc32_of_16(zk_folded_wide(&ZK_CRC32_FOLDS, at, bytes));
}

ZK_WITH_WIDE static uint32_t zk_crc32c_wide(const zk_crc *crc, const uint8_t *at, size_t bytes) {
    if (bytes < ZK_WIDE_BYTES_MIN) return zk_crc32c_pclmul(crc, at, bytes);
    return ~zk_crc32c_of_16(zk_folded_wide(&ZK_CRC32C_FOLDS, at, bytes));
}

#endif

#endif

/* --- ARMv8 -------------------------------------------------------------------------------------------------------- */

#ifdef ZK_ARM

#define ZK_ARM_CRC(name, of_8, of_1)                                                                                  \
    __attribute__((target("+crc"))) static uint32_t name(const zk_crc *crc, const uint8_t *at, size_t bytes) {       \
        (void)crc;                                                                                                    \
        uint32_t found = 0xFFFFFFFFu;                                                                                 \
        for (; bytes >= 8; at += 8, bytes -= 8) {                                                                     \
            uint64_t word;                                                                                            \
            memcpy(&word, at, 8);                                                                                     \
            found = of_8(found, word);                                                                                \
        }                                                                                                             \
        for (; bytes; bytes--) found = of_1(found, *at++);                                                            \
        return ~found;                                                                                                \
    }

ZK_ARM_CRC(zk_crc32_arm, __crc32d, __crc32b)
ZK_ARM_CRC(zk_crc32c_arm, __crc32cd, __crc32cb)

static bool zk_arm_has_crc(void) {
#ifdef __linux__
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
#else
    return true; /* every 64-bit processor of Apple has it */
#endif
}

#endif

/* --- the choice --------------------------------------------------------------------------------------------------- */

/* What may be used, if the processor has it.  Only tests need less than ZK_CRC_ALL. */
typedef enum { ZK_CRC_TABLES, ZK_CRC_WITHOUT_AVX512, ZK_CRC_ALL } zk_crc_use;

#define ZK_CRC_USES 3

static void zk_crc_init(zk_crc *crc, const zk_crc_tables *tables, zk_crc_use use) {
    crc->tables = tables;
    crc->crc32 = zk_crc32_sliced;
    crc->crc32c = zk_crc32c_sliced;
    crc->crc32_by = crc->crc32c_by = "tables";
    if (use == ZK_CRC_TABLES) return;
#ifdef ZK_X86
    __builtin_cpu_init();
    bool has_sse42 = __builtin_cpu_supports("sse4.2"), has_pclmul = has_sse42 && __builtin_cpu_supports("pclmul");
    if (has_sse42) {
        crc->crc32c = zk_crc32c_sse42;
        crc->crc32c_by = "SSE4.2";
    }
    if (has_pclmul) {
        crc->crc32 = zk_crc32_pclmul;
        crc->crc32c = zk_crc32c_pclmul;
        crc->crc32_by = crc->crc32c_by = "PCLMULQDQ";
    }
#ifdef ZK_X86_WIDE
    if (has_pclmul && use == ZK_CRC_ALL && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
        crc->crc32 = zk_crc32_wide;
        crc->crc32c = zk_crc32c_wide;
        crc->crc32_by = crc->crc32c_by = "VPCLMULQDQ";
    }
#endif
#endif
#ifdef ZK_ARM
    if (zk_arm_has_crc()) {
        crc->crc32 = zk_crc32_arm;
        crc->crc32c = zk_crc32c_arm;
        crc->crc32_by = crc->crc32c_by = "ARMv8";
    }
#endif
}

#endif
