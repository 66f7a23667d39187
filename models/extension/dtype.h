/* What differs between float32 (FLOAT32 is defined) and bfloat16: ELEMENT is a number of a tensor, PACKED one of a
 * product's operands. Without instructions for bfloat16, these are its numbers as float32. */
#undef NAME
#undef ELEMENT
#undef LOAD
#undef STORE
#undef ROUND
#undef PACKED
#undef LOAD_PACKED
#undef STORE_PACKED
#undef PER_LANE
#undef PAIRS
#ifdef FLOAT32
#define NAME(x) x##_f32
#define ELEMENT float
#define LOAD load_f32
#define STORE store_f32
#define ROUND(x) (x)
#else
#define NAME(x) x##_bf16
#define ELEMENT bfloat16
#define LOAD load_bf16
#define STORE store_bf16
#define ROUND rounded_to_bf16
#endif
#if defined(__AVX512BF16__) && !defined(FLOAT32)
#define PACKED bfloat16
#define LOAD_PACKED load_bf16
#define STORE_PACKED store_bf16
#define PAIRS
#define PER_LANE 2 /* rows of a matrix that one multiplication of a lane takes */
#else
#define PACKED float
#define LOAD_PACKED load_f32
#define STORE_PACKED store_f32
#define PER_LANE 1
#endif
