// The slices of chains of more than 128 nodes, between matrix products.
//
// Compiled with -DMOST=n where a thread takes at most n nodes of a slice.

// To the nearest number of ten fraction bits, so that no tensor core rounds it down.
__device__ __forceinline__ real narrowed(real x, int narrow) {
    if constexpr (sizeof(real) == 4) {
        if (narrow) {
            return real(__uint_as_float((__float_as_uint(float(x)) + 0x1000u) & 0xffffe000u));
        }
    }
    return x;
}

// One slice of a large chain: vectors[row] = mixed * table[slot[row]] + under, divided by the power
// of two below the largest entry, which is added to `powers`. A block takes a sequence, whose row is
// `along` behind its first. `out` has the rows of all sequences side by side; it or `kept` may be none.
extern "C" __global__ void rise(
    const real* __restrict__ mixed, const real* __restrict__ table, const int* __restrict__ slot,
    const long long* __restrict__ first, int along, int width, int k, real under, int narrow,
    real* __restrict__ out, real* __restrict__ kept, int* __restrict__ exponents,
    long long* __restrict__ powers, real* __restrict__ least) {
    const int lane = blockIdx.x;
    const long long row = first[lane] + along;
    const real* coefficients = table + (long long)slot[row] * width;
    const real* from = mixed == nullptr ? nullptr : mixed + (long long)lane * width;
    real own[MOST];
    real high = 0, low = 1;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            own[a] = (from == nullptr ? real(1) : from[j]) * coefficients[j] + under;
            high = own[a] > high ? own[a] : high;
            if (j < k) { low = own[a] < low ? own[a] : low; }
        }
    }
    __shared__ real highs[32], lows[32];
    for (int step = 16; step; step /= 2) { low = min(low, __shfl_xor_sync(EVERY_LANE, low, step)); }
    if (threadIdx.x % 32 == 0) { lows[threadIdx.x / 32] = low; }
    high = highest_of_block(high, highs);  // its barrier serves `lows` too
    const int e = high > 0 ? exponent_of(high) : 0;
    const real unit = power_of_two(-e);
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            const real value = narrowed(own[a] * unit, narrow);
            if (out != nullptr) { out[(long long)lane * width + j] = value; }
            if (kept != nullptr) { kept[row * width + j] = value; }
        }
    }
    if (threadIdx.x == 0) {
        powers[lane] += e;
        for (int w = 1; w < blockDim.x / 32; ++w) { low = min(low, lows[w]); }
        if (low < least[lane]) { least[lane] = low; }
        if (exponents != nullptr) { exponents[row] = e; }
    }
}

// One slice of a large chain on the way down, as in `backward` of scan.cu. `handed` has the uses of all
// sequences side by side; it may be none.
extern "C" __global__ void fall(
    const real* __restrict__ derivatives, const real* __restrict__ table,
    const int* __restrict__ slot, const long long* __restrict__ first, int along, int width,
    int is_bottom, int narrow, const real* __restrict__ vectors, const int* __restrict__ exponents,
    const real* __restrict__ share, int* __restrict__ highest, real* __restrict__ posteriors,
    real* __restrict__ uses, real* __restrict__ handed) {
    const int lane = blockIdx.x;
    const long long row = first[lane] + along;
    const real* coefficients = table + (long long)slot[row] * width;
    const real* from = derivatives + (long long)lane * width;
    const bool counts = share[lane] > 0;
    const real unit = power_of_two(-exponents[row]);
    unsigned most = 0;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            const real derivative = from[j];
            most = max(most, bits_of(derivative));
            posteriors[row * width + j] = counts ? vectors[row * width + j] * derivative : real(0);
            const real use = counts && !is_bottom ? coefficients[j] * unit * derivative : real(0);
            uses[row * width + j] = narrowed(use, narrow);
            if (handed != nullptr) { handed[(long long)lane * width + j] = narrowed(use, narrow); }
        }
    }
    __shared__ unsigned highs[32];
    const int e = exponent_in(highest_of_block(most, highs));
    if (threadIdx.x == 0 && e > highest[lane]) { highest[lane] = e; }
}
