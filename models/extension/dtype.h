/* What differs between float32 (FLOAT32 is defined) and bfloat16. */
#undef NAME
#undef ELEMENT
#undef LOAD
#undef STORE
#undef PER_LANE
#ifdef FLOAT32
#define NAME(x) x##_f32
#define ELEMENT float
#define LOAD load_f32
#define STORE store_f32
#define PER_LANE 1 /* rows of a matrix that one multiplication of a lane takes */
#else
#define NAME(x) x##_bf16
#define ELEMENT bfloat16
#define LOAD load_bf16
#define STORE store_bf16
#define PER_LANE 2
#endif
