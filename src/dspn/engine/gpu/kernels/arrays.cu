// Small kernels around the passes: rows of coefficients, sums of rows, and the slices of large chains.
//
// Compiled with -DREAL=float or double, and -DMOST=n where a thread takes at most n nodes of a slice.

typedef REAL real;

__device__ __forceinline__ int exponent_of(real x) {
    if constexpr (sizeof(real) == 4) {
        return int((__float_as_uint(float(x)) >> 23) & 255) - 127;
    } else {
        return int((__double_as_longlong(double(x)) >> 52) & 2047) - 1023;
    }
}

__device__ __forceinline__ real power_of_two(int e) {
    constexpr int LIMIT = sizeof(real) == 4 ? 126 : 1022;
    e = e > LIMIT ? LIMIT : (e < -LIMIT ? -LIMIT : e);
    if constexpr (sizeof(real) == 4) {
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

// joined[row, j] is the product over chunks of table[codes[row, chunk], j], divided by the power of two
// below the largest entry of the row, which `scales` has. A block takes a row. Tables are in double
// precision: what they hold of 0 by rounding stays too small to count, as far as MOST_LIFTED allows.
extern "C" __global__ void join(
    const double* __restrict__ table, const int* __restrict__ codes, int chunks, int width,
    real* __restrict__ joined, int* __restrict__ scales) {
    constexpr int MOST_LIFTED = sizeof(real) == 4 ? 880 : 30;
    const long long row = blockIdx.x;
    const int* own = codes + row * chunks;
    auto product = [&](int j) {
        double found = table[(long long)own[0] * width + j];
        for (int c = 1; c < chunks; ++c) { found *= table[(long long)own[c] * width + j]; }
        return found;
    };
    __shared__ double highs[32];
    double high = 0;
    for (int j = threadIdx.x; j < width; j += blockDim.x) { high = fmax(high, product(j)); }
    for (int step = 16; step; step /= 2) {
        high = fmax(high, __shfl_xor_sync(0xffffffffu, high, step));
    }
    if (threadIdx.x % 32 == 0) { highs[threadIdx.x / 32] = high; }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) { high = fmax(high, highs[w]); }
    int e = high > 0 ? ilogb(high) : 0;
    e = e < -MOST_LIFTED ? -MOST_LIFTED : e;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        joined[row * width + j] = real(ldexp(product(j), -e));
    }
    if (threadIdx.x == 0) { scales[row] = e; }
}

// Rows of coefficients: table[row, j] = exp(sum over places of logs[digits[row, place], j] - largest of
// the row), which `divisors` has. A block takes a row; digits below 0 are none.
extern "C" __global__ void tabulate(
    const double* __restrict__ logs, const int* __restrict__ digits, int places, int k, int width,
    real* __restrict__ table, double* __restrict__ divisors) {
    const long long row = blockIdx.x;
    const int* own = digits + row * places;
    __shared__ double highs[32];
    double high = -1.0 / 0.0;
    for (int j = threadIdx.x; j < k; j += blockDim.x) {
        double sum = 0;
        for (int p = 0; p < places && own[p] >= 0; ++p) { sum += logs[(long long)own[p] * k + j]; }
        high = fmax(high, sum);
    }
    for (int step = 16; step; step /= 2) {
        high = fmax(high, __shfl_xor_sync(0xffffffffu, high, step));
    }
    if (threadIdx.x % 32 == 0) { highs[threadIdx.x / 32] = high; }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) { high = fmax(high, highs[w]); }
    if (!(high > -1.0 / 0.0)) { high = 0; }
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        double sum = 0;
        for (int p = 0; j < k && p < places && own[p] >= 0; ++p) {
            sum += logs[(long long)own[p] * k + j];
        }
        table[row * width + j] = j < k ? real(exp(sum - high)) : real(0);
    }
    if (threadIdx.x == 0) { divisors[row] = high; }
}

// Sums of log divisors over the slices of each sequence, and the least of a slice: a warp takes one.
// `scales` are those of `join`, or none.
extern "C" __global__ void add_divisors(
    const double* __restrict__ divisors, const double* __restrict__ bottom_divisors,
    const int* __restrict__ scales, const int* __restrict__ bottom_scales,
    const int* __restrict__ codes, int chunks, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, double* __restrict__ results) {
    const int sequence = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (sequence >= count) { return; }
    double sum = 0, low = 0;
    for (int h = lane; h < lengths[sequence]; h += 32) {
        const long long row = first[sequence] + (long long)direction * h;
        const double* table = h ? divisors : bottom_divisors;
        const int* powers = h ? scales : bottom_scales;
        double own = powers == nullptr ? 0.0 : powers[row] * 0.69314718055994530942;
        for (int c = 0; c < chunks; ++c) { own += table[codes[row * chunks + c]]; }
        sum += own;
        low = fmin(low, own);
    }
    for (int step = 16; step; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        low = fmin(low, __shfl_xor_sync(0xffffffffu, low, step));
    }
    if (lane == 0) {
        results[sequence] = sum;
        results[(long long)count + sequence] = low;
    }
}

// sums[piece, j] = sum over places start[piece] <= i < start[piece + 1] of values[order[i], j], in
// this order.
extern "C" __global__ void add_rows(
    const real* __restrict__ values, const long long* __restrict__ order,
    const long long* __restrict__ start, int width, double* __restrict__ sums) {
    const int j = blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= width) { return; }
    const long long from = start[blockIdx.x], to = start[blockIdx.x + 1];
    double sum = 0;
    long long i = from;
    for (; i + 4 <= to; i += 4) {
        const real a = values[order[i] * width + j], b = values[order[i + 1] * width + j];
        const real c = values[order[i + 2] * width + j], d = values[order[i + 3] * width + j];
        sum += (double(a) + double(b)) + (double(c) + double(d));
    }
    for (; i < to; ++i) { sum += double(values[order[i] * width + j]); }
    sums[(long long)blockIdx.x * width + j] = sum;
}

// One slice of a large chain: vectors[row] = mixed * table[slot[row]] + under, divided by the power
// of two below the largest entry, which is added to `powers`. A block takes a sequence, whose row is
// `along` behind its first.
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
    for (int step = 16; step; step /= 2) {
        high = max(high, __shfl_xor_sync(0xffffffffu, high, step));
        low = min(low, __shfl_xor_sync(0xffffffffu, low, step));
    }
    if (threadIdx.x % 32 == 0) {
        highs[threadIdx.x / 32] = high;
        lows[threadIdx.x / 32] = low;
    }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) {
        high = max(high, highs[w]);
        low = min(low, lows[w]);
    }
    const int e = high > 0 ? exponent_of(high) : 0;
    const real unit = power_of_two(-e);
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            const real value = narrowed(own[a] * unit, narrow);
            out[(long long)lane * width + j] = value;
            if (kept != nullptr) { kept[row * width + j] = value; }
        }
    }
    if (threadIdx.x == 0) {
        powers[lane] += e;
        if (low < least[lane]) { least[lane] = low; }
        if (exponents != nullptr) { exponents[row] = e; }
    }
}

// One slice of a large chain on the way down; see `fall` of the program for the units.
extern "C" __global__ void fall(
    const real* __restrict__ derivatives, const real* __restrict__ table,
    const int* __restrict__ slot, const long long* __restrict__ first, int along, int width,
    int is_bottom, int narrow, const real* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const real* __restrict__ share, int* __restrict__ lack,
    int* __restrict__ highest, real* __restrict__ posteriors, real* __restrict__ uses,
    real* __restrict__ handed) {
    const int lane = blockIdx.x;
    const long long row = first[lane] + along;
    const real* coefficients = table + (long long)slot[row] * width;
    const real* from = derivatives + (long long)lane * width;
    const int before = lack[lane], own_exponent = exponents[row];
    const real weight = share[lane];
    const real unit = weight > 0 ? real(double(weight) / root[lane]) * power_of_two(before) : real(0);
    real own[MOST];
    real high = 0;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            const real derivative = from[j];
            own[a] = coefficients[j] * derivative;
            high = own[a] > high ? own[a] : high;
            posteriors[row * width + j] =
                weight > 0 ? vectors[row * width + j] * derivative * unit : real(0);
        }
    }
    __shared__ real highs[32];
    for (int step = 16; step; step /= 2) {
        high = max(high, __shfl_xor_sync(0xffffffffu, high, step));
    }
    if (threadIdx.x % 32 == 0) { highs[threadIdx.x / 32] = high; }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) { high = max(high, highs[w]); }
    const int e = high > 0 ? exponent_of(high) : 0;
    const real smaller = power_of_two(-e), below = power_of_two(-own_exponent) * unit;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int j = a * blockDim.x + threadIdx.x;
        if (j < width) {
            uses[row * width + j] =
                weight > 0 && !is_bottom ? narrowed(own[a] * below, narrow) : real(0);
            handed[(long long)lane * width + j] = narrowed(own[a] * smaller, narrow);
        }
    }
    if (threadIdx.x == 0) {
        if (before > highest[lane]) { highest[lane] = before; }
        if (!is_bottom) { lack[lane] = before + e - own_exponent; }
    }
}
