// What several kernels share: put before the text of every file. Compiled with -DREAL=float or double.

typedef REAL real;
constexpr bool IS_FLOAT = sizeof(real) == 4;
constexpr unsigned EVERY_LANE = 0xffffffffu;

// The upper 32 bits. Of numbers that are not negative the larger has the larger bits, NaN the largest.
__device__ __forceinline__ unsigned bits_of(real x) {
    if constexpr (IS_FLOAT) {
        return __float_as_uint(float(x));
    } else {
        return unsigned((unsigned long long)__double_as_longlong(double(x)) >> 32);
    }
}

__device__ __forceinline__ int exponent_in(unsigned bits) {
    return IS_FLOAT ? int((bits >> 23) & 255) - 127 : int((bits >> 20) & 2047) - 1023;
}

__device__ __forceinline__ int exponent_of(real x) { return exponent_in(bits_of(x)); }

__device__ __forceinline__ real power_of_two(int e) {
    constexpr int LIMIT = IS_FLOAT ? 126 : 1022;
    e = min(max(e, -LIMIT), LIMIT);
    if constexpr (IS_FLOAT) {
        return real(__uint_as_float((unsigned)(e + 127) << 23));
    } else {
        return real(__longlong_as_double((long long)(e + 1023) << 52));
    }
}

// To the nearest number of ten fraction bits, so that no tensor core rounds it down.
__device__ __forceinline__ real narrowed(real x, int narrow) {
    if constexpr (sizeof(real) == 4) {
        if (narrow) {
            return real(__uint_as_float((__float_as_uint(float(x)) + 0x1000u) & 0xffffe000u));
        }
    }
    return x;
}

// What `better` makes of the values of all threads of a block, known to all; `shared` has room for 32.
template <typename T, typename Better>
__device__ __forceinline__ T over_block(T own, T* shared, Better better) {
    for (int step = 16; step; step /= 2) { own = better(own, __shfl_xor_sync(EVERY_LANE, own, step)); }
    if (threadIdx.x % 32 == 0) { shared[threadIdx.x / 32] = own; }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) { own = better(own, shared[w]); }
    return own;
}

template <typename T> __device__ __forceinline__ T highest_of_block(T own, T* shared) {
    return over_block(own, shared, [](T a, T b) { return b > a ? b : a; });
}

template <typename T> __device__ __forceinline__ T lowest_of_block(T own, T* shared) {
    return over_block(own, shared, [](T a, T b) { return b < a ? b : a; });
}

// Adds to a logarithm of three terms.
__device__ __forceinline__ void add(double* total, double log) {
    for (int term = 0; term < 2; ++term) {
        const double sum = total[term] + log, other = sum - total[term];
        log = (total[term] - (sum - other)) + (log - other);
        total[term] = sum;
    }
    total[2] += log;
}

// A sequence: its slice at height h is row start + h * direction.
struct Slices {
    long long start;
    int direction, length;
    __device__ __forceinline__ long long row(int h) const { return start + (long long)direction * h; }
};

__device__ __forceinline__ Slices find_slices(
    const long long* first, const int* lengths, int direction, int sequence, int count) {
    const bool there = sequence < count;
    return {there ? first[sequence] : 0, direction, there ? lengths[sequence] : 0};
}

// Coefficients of the slices of a sequence in the order of a pass. Those of the next DEPTH slices are on
// their way, and so are the rows of the table for the DEPTH behind them. The way down ends above the
// bottom, whose coefficients it does not need.
template <int DEPTH, int NODES, bool UPWARD> struct Coefficients {
    real value[DEPTH][NODES];
    int slots[DEPTH];

    static __device__ __forceinline__ int height(const Slices& own, int step) {
        return UPWARD ? step : own.length - 1 - step;
    }
    static __device__ __forceinline__ bool has(const Slices& own, int step) {
        return UPWARD ? step < own.length : step < own.length - 1;
    }
    __device__ __forceinline__ void find(int a, int step, const Slices& own, const int* slot) {
        slots[a] = has(own, step) ? slot[own.row(height(own, step))] : 0;
    }
    // load(row, to) reads the thread's nodes of a row of `width` coefficients.
    template <typename Load>
    __device__ __forceinline__ void fetch(
        int a, int step, const Slices& own, const int* slot, const real* table, int width, Load load) {
#pragma unroll
        for (int n = 0; n < NODES; ++n) { value[a][n] = 0; }
        if (has(own, step)) { load(table + (long long)slots[a] * width, value[a]); }
        find(a, step + DEPTH, own, slot);
    }
};
