// Rows of coefficients of chains, and sums of what they were divided by.

// joined[row, j] is the product over chunks of table[codes[row, chunk], j], divided by the power of two
// below the largest entry of the row, which `scales` has. `across` threads of a warp take a row. Tables are
// in double precision: what they hold of 0 by rounding stays too small to count, as far as MOST_LIFTED allows.
extern "C" __global__ void __launch_bounds__(128) join(
    const double* __restrict__ table, const int* __restrict__ codes, long long rows, int chunks,
    int width, int across, real* __restrict__ joined, int* __restrict__ scales) {
    constexpr int MOST_LIFTED = sizeof(real) == 4 ? 880 : 30;
    constexpr int KEPT = 4;  // products that need not be found again
    const long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / across;
    const int* own = codes + min(row, rows - 1) * chunks;
    const int thread = threadIdx.x % across;
    auto product = [&](int j) {
        double found = table[(long long)own[0] * width + j];
        for (int c = 1; c < chunks; ++c) { found *= table[(long long)own[c] * width + j]; }
        return found;
    };
    double kept[KEPT], high = 0;
#pragma unroll
    for (int a = 0; a < KEPT; ++a) {
        const int j = a * across + thread;
        kept[a] = j < width ? product(j) : 0;
        high = fmax(high, kept[a]);
    }
    for (int j = KEPT * across + thread; j < width; j += across) { high = fmax(high, product(j)); }
    for (int step = across / 2; step; step /= 2) {
        high = fmax(high, __shfl_xor_sync(EVERY_LANE, high, step));
    }
    if (row >= rows) { return; }
    int e = high > 0 ? ilogb(high) : 0;
    e = e < -MOST_LIFTED ? -MOST_LIFTED : e;
    real* to = joined + row * width;
#pragma unroll
    for (int a = 0; a < KEPT; ++a) {
        const int j = a * across + thread;
        if (j < width) { to[j] = real(ldexp(kept[a], -e)); }
    }
    for (int j = KEPT * across + thread; j < width; j += across) { to[j] = real(ldexp(product(j), -e)); }
    if (thread == 0) { scales[row] = e; }
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
    high = highest_of_block(high, highs);
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

// Sums of log divisors over the slices of each sequence, and the least of a slice: a block takes one.
// `scales` are those of `join`, or none.
extern "C" __global__ void add_divisors(
    const double* __restrict__ divisors, const double* __restrict__ bottom_divisors,
    const int* __restrict__ scales, const int* __restrict__ bottom_scales,
    const int* __restrict__ codes, int chunks, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, double* __restrict__ results) {
    const int sequence = blockIdx.x;
    double sum = 0, low = 0;
#pragma unroll 4
    for (int h = threadIdx.x; h < lengths[sequence]; h += blockDim.x) {
        const long long row = first[sequence] + (long long)direction * h;
        const double* table = h ? divisors : bottom_divisors;
        const int* powers = h ? scales : bottom_scales;
        double own = powers == nullptr ? 0.0 : powers[row] * 0.69314718055994530942;
        for (int c = 0; c < chunks; ++c) { own += table[codes[row * chunks + c]]; }
        sum += own;
        low = fmin(low, own);
    }
    __shared__ double sums[32], lows[32];
    low = lowest_of_block(low, lows);
    for (int step = 16; step; step /= 2) { sum += __shfl_xor_sync(EVERY_LANE, sum, step); }
    if (threadIdx.x % 32 == 0) { sums[threadIdx.x / 32] = sum; }
    __syncthreads();
    if (threadIdx.x) { return; }
    for (int w = 1; w < blockDim.x / 32; ++w) { sum += sums[w]; }
    results[sequence] = sum;
    results[(long long)count + sequence] = low;
}
