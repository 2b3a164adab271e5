// Both passes over the sequences of a chain of at most K nodes, one group of threads for each.
//
// Compiled with -DK=8, 16, 32, 64 or 128, -DTHREADS=n for a block, and -DTABLES=1 where the weights of a
// slice are one of several matrices. Thread j has node j. Where K > 32 four neighbours share out the
// inputs of their four nodes, so that an input read from shared memory serves four products. Weights
// stay in registers. On the way up vectors are divided at every second slice by the power of two below
// their largest entry two slices before, which is exact, and known without waiting. The way down
// divides by the same powers, so that values times derivatives add up to the share of the sequence.

constexpr int PER = THREADS / K;
constexpr int NODES = K > 32 ? 4 : 1;
constexpr int OWN = K / NODES;
constexpr int VECTOR = 4;
constexpr int WARPS = K < 32 ? 1 : K / 32;
// Slices whose loads are on their way. Few sequences wait for little else.
constexpr int AHEAD = THREADS == 32 && IS_FLOAT && !TABLES ? 8 : 4;
// Blocks of a multiprocessor that the compiler leaves registers for; more would spill them.
constexpr bool IS_NARROW = IS_FLOAT && K <= 32 && THREADS == 128 && !TABLES;
constexpr int UP_BLOCKS = IS_NARROW ? 8 : 1;
constexpr int DOWN_BLOCKS = IS_NARROW ? 6 : 1;

__device__ __forceinline__ void together() {
    if constexpr (K <= 32) { __syncwarp(); } else { __syncthreads(); }
}

// The largest exponent among the threads of a sequence that share a warp.
__device__ __forceinline__ int largest_in_warp(int e) {
    if constexpr (K >= 32) {
        return __reduce_max_sync(EVERY_LANE, e);
    } else {
#pragma unroll
        for (int step = K / 2; step; step /= 2) {
            e = max(e, __shfl_xor_sync(EVERY_LANE, e, step));
        }
        return e;
    }
}

struct Vectors {
    alignas(16) real v[PER][2][K];
    alignas(16) int largest[PER][2][WARPS];
};

// Begins to find the largest exponent of a group; `measured` has it when the group has met.
__device__ __forceinline__ int measure(Vectors& shared, int own, int turn, int j, int exponent) {
    const int e = largest_in_warp(exponent);
    if constexpr (WARPS > 1) {
        if (j % 32 == 0) { shared.largest[own][turn][j / 32] = e; }
    }
    return e;
}

__device__ __forceinline__ int measured(const Vectors& shared, int own, int turn, int e) {
    if constexpr (WARPS > 1) {
#pragma unroll
        for (int w = 0; w < WARPS; ++w) { e = max(e, shared.largest[own][turn][w]); }
    }
    return max(e, IS_FLOAT ? -126 : -1022);
}

__device__ __forceinline__ real dot(const real (*weights)[OWN], const real* v) {
    const int part = threadIdx.x % 4;
    real sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int q = 0; q < OWN / VECTOR; ++q) {
        real some[VECTOR];
        const real* from = v + VECTOR * (NODES == 1 ? q : part + 4 * q);
        if constexpr (IS_FLOAT) {
            const float4 four = *reinterpret_cast<const float4*>(from);
            some[0] = four.x;
            some[1] = four.y;
            some[2] = four.z;
            some[3] = four.w;
        } else {
#pragma unroll
            for (int r = 0; r < VECTOR; ++r) { some[r] = from[r]; }
        }
#pragma unroll
        for (int r = 0; r < VECTOR; ++r) {
#pragma unroll
            for (int o = 0; o < 4; ++o) {
                if (NODES == 1 && o != r) { continue; }
                sums[o] += weights[NODES == 1 ? 0 : o][q * VECTOR + r] * some[r];
            }
        }
    }
    if constexpr (NODES == 1) { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }
    // Each thread hands over what belongs to the others and keeps its own node.
    const bool upper = part & 2, odd = part & 1;
    real first = upper ? sums[2] : sums[0], second = upper ? sums[3] : sums[1];
    first += __shfl_xor_sync(EVERY_LANE, upper ? sums[0] : sums[2], 2);
    second += __shfl_xor_sync(EVERY_LANE, upper ? sums[1] : sums[3], 2);
    const real kept = odd ? second : first;
    return kept + __shfl_xor_sync(EVERY_LANE, odd ? first : second, 1);
}

__device__ __forceinline__ void load_weights(const real* __restrict__ matrix, real (*weights)[OWN]) {
    const int j = threadIdx.x % K, part = threadIdx.x % 4;
#pragma unroll
    for (int o = 0; o < NODES; ++o) {
#pragma unroll
        for (int q = 0; q < OWN / VECTOR; ++q) {
#pragma unroll
            for (int r = 0; r < VECTOR; ++r) {
                const int input = VECTOR * (NODES == 1 ? q : part + 4 * q) + r;
                weights[o][q * VECTOR + r] = matrix[input * K + (NODES == 1 ? j : (j & ~3) + o)];
            }
        }
    }
}

// transition[i * K + j]: weight of input i in the sum of output j; with TABLES those of a slice are matrix
// which[row]. Its coefficients are table[slot[row] * K + j], at height 0 those of bottom_table.
// `results` are, for all sequences: the value of the root, the exponent that it lacks, and the least value
// met. Sequences stand from the longest to the shortest.
extern "C" __global__ void __launch_bounds__(THREADS, UP_BLOCKS) forward(
    const real* __restrict__ transition, const int* __restrict__ which,
    const real* __restrict__ table, const real* __restrict__ bottom_table,
    const real* __restrict__ top, const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, real under,
    real* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ results) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / K, j = threadIdx.x % K, sequence = blockIdx.x * PER + own;
    const Slices slices = find_slices(first, lengths, direction, sequence, count);
    const int longest = lengths[blockIdx.x * PER];
    real weights[NODES][OWN];
    if constexpr (!TABLES) { load_weights(transition, weights); }
    real value = 0, low = 1, unit = 1;
    int scale = 0, waiting = 0;
    long long total = 0;
    auto load = [&](const real* row, real* to) { to[0] = row[j]; };
    Coefficients<AHEAD, 1, true> ahead;
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) { ahead.find(a, a, slices, slot); }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        ahead.fetch(a, a, slices, slot, a ? table : bottom_table, K, load);
    }
    for (int base = 0; base < longest; base += AHEAD) {
        real now[AHEAD];
        int matrix[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now[a] = ahead.value[a][0];
            ahead.fetch(a, base + AHEAD + a, slices, slot, table, K, load);
            matrix[a] = TABLES && base + a < slices.length ? which[slices.row(base + a)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const int h = base + a;
            if (h >= longest) { break; }
            const bool active = h < slices.length, even = a % 2 == 0;
            if (h == 0) {
                value = now[a] + under;
            } else {
                if constexpr (TABLES) { load_weights(transition + (long long)matrix[a] * K * K, weights); }
                const real y = dot(weights, shared.v[own][(a + 1) & 1]);
                if (even) {
                    scale = measured(shared, own, (a / 2 + 1) & 1, waiting);
                    unit = power_of_two(-scale);
                }
                if (active) {
                    value = (even ? now[a] * unit : now[a]) * y + under;
                    if (even) { total += scale; }
                }
            }
            if (active) {
                if (j < k) { low = value < low ? value : low; }
                if (vectors != nullptr) {
                    vectors[slices.row(h) * K + j] = value;
                    if (j == 0) { exponents[slices.row(h)] = even && h ? scale : 0; }
                }
            }
            shared.v[own][a & 1][j] = value;
            if (even) { waiting = measure(shared, own, (a / 2) & 1, j, exponent_of(value)); }
            together();
        }
    }
    // The root is a linear form of the last vector.
    double sum = sequence < count ? double(value) * double(top[j]) : 0.0;
    constexpr int WIDTH = K < 32 ? K : 32;
#pragma unroll
    for (int step = WIDTH / 2; step; step /= 2) {
        sum += __shfl_xor_sync(EVERY_LANE, sum, step);
        low = min(low, __shfl_xor_sync(EVERY_LANE, low, step));
    }
    if constexpr (WARPS > 1) {
        __shared__ double sums[PER][WARPS], lows[PER][WARPS];
        if (j % 32 == 0) {
            sums[own][j / 32] = sum;
            lows[own][j / 32] = double(low);
        }
        __syncthreads();
        sum = 0;
        for (int w = 0; w < WARPS; ++w) {
            sum += sums[own][w];
            low = min(low, real(lows[own][w]));
        }
    }
    if (sequence < count && j == 0) {
        results[sequence] = sum;
        results[(long long)count + sequence] = double(total);
        results[2LL * count + sequence] = double(low);
    }
}

// Posteriors of the outputs of every slice, times the share of the sequence, and `uses`: what the sum of
// each output hands to its inputs, so that input i of output j is used transition[i * K + j] *
// uses[row, j] * vectors[row below, i] times. `highest` is the exponent of the largest derivative.
extern "C" __global__ void __launch_bounds__(THREADS, DOWN_BLOCKS) backward(
    const real* __restrict__ transposed, const int* __restrict__ which,
    const real* __restrict__ table, const real* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const real* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const real* __restrict__ share,
    real* __restrict__ posteriors, real* __restrict__ uses, int* __restrict__ highest) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / K, j = threadIdx.x % K, sequence = blockIdx.x * PER + own;
    const Slices slices = find_slices(first, lengths, direction, sequence, count);
    const int longest = lengths[blockIdx.x * PER];
    real weights[NODES][OWN];
    if constexpr (!TABLES) { load_weights(transposed, weights); }
    const real weight = sequence < count ? share[sequence] : real(0);
    const bool counts = weight > 0;
    real derivative = counts ? real(double(weight) / root[sequence]) * top[j] : real(0);
    unsigned most = 0;
    auto load = [&](const real* row, real* to) { to[0] = row[j]; };
    Coefficients<AHEAD, 1, false> ahead;
    real ahead_vector[AHEAD];
    int ahead_exponent[AHEAD];
    auto fetch = [&](int a, int step) {
        ahead.fetch(a, step, slices, slot, table, K, load);
        const int h = slices.length - 1 - step;
        ahead_vector[a] = h >= 0 ? vectors[slices.row(h) * K + j] : real(0);
        ahead_exponent[a] = h >= 0 ? exponents[slices.row(h)] : 0;
    };
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) { ahead.find(a, a, slices, slot); }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) { fetch(a, a); }
    for (int base = 0; base < longest; base += AHEAD) {
        real now[AHEAD], now_vector[AHEAD];
        int matrix[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now[a] = ahead.value[a][0] * power_of_two(-ahead_exponent[a]);
            now_vector[a] = ahead_vector[a];
            fetch(a, base + AHEAD + a);
            const int h = slices.length - 1 - (base + a);
            matrix[a] = TABLES && h >= 0 ? which[slices.row(h)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (base + a >= longest) { break; }
            const int h = slices.length - 1 - (base + a);
            const real handed = counts ? now[a] * derivative : real(0);
            shared.v[own][a & 1][j] = handed;
            together();
            if (h >= 0) {
                most = max(most, bits_of(derivative));
                posteriors[slices.row(h) * K + j] = counts ? now_vector[a] * derivative : real(0);
                uses[slices.row(h) * K + j] = handed;
            }
            if constexpr (TABLES) { load_weights(transposed + (long long)matrix[a] * K * K, weights); }
            const real y = dot(weights, shared.v[own][a & 1]);
            if (h > 0) { derivative = y; }
        }
    }
    const int e = measure(shared, own, 0, j, exponent_in(most));
    together();
    if (sequence < count && j == 0) { highest[sequence] = measured(shared, own, 0, e); }
}

// parts[p, j, i] = sum over some rows of left[row, j] * right[row, i]. A block takes every gridDim.x-th
// set of SETS rows, one row for each set of threads; p = blockIdx.x * SETS + set. Launched with 256 threads.
extern "C" __global__ void __launch_bounds__(256) outer(
    const real* __restrict__ left, const real* __restrict__ right, long long rows,
    double* __restrict__ parts) {
    constexpr int PAIRS = K * K, SETS = PAIRS < 256 ? 256 / PAIRS : 1;
    constexpr int EACH = PAIRS < 256 ? 1 : PAIRS / 256;
    const int set = threadIdx.x / (256 / SETS), local = threadIdx.x % (256 / SETS);
    double sums[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) { sums[e] = 0; }
    const long long step = (long long)gridDim.x * SETS;
#pragma unroll 4
    for (long long row = (long long)blockIdx.x * SETS + set; row < rows; row += step) {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const int pair = local + 256 * e;
            sums[e] += double(left[row * K + pair / K]) * double(right[row * K + pair % K]);
        }
    }
    double* out = parts + ((long long)blockIdx.x * SETS + set) * PAIRS;
#pragma unroll
    for (int e = 0; e < EACH; ++e) { out[local + 256 * e] = sums[e]; }
}
