// Both passes over the sequences of a chain of at most K nodes, one group of threads for each.
//
// Compiled with -DK=8, 16, 32, 64 or 128, -DTHREADS=n for a block and -DREAL=float or double. Thread j
// has node j. Where K > 32 four neighbours share out the inputs of their four nodes, so that an input
// read from shared memory serves four products. Weights stay in registers. At every second slice vectors
// are divided by the power of two below their largest entry two slices before, which is exact, and
// known without waiting.

typedef REAL real;
constexpr bool IS_FLOAT = sizeof(real) == 4;
constexpr int GROUP = K;
constexpr int PER = THREADS / GROUP;
constexpr int NODES = K > 32 ? 4 : 1;
constexpr int OWN = K / NODES;
constexpr int VECTOR = 4;
constexpr int WARPS = GROUP < 32 ? 1 : GROUP / 32;
constexpr int AHEAD = 4;

__device__ __forceinline__ int exponent_of(real x) {
    if constexpr (IS_FLOAT) {
        return int((__float_as_uint(float(x)) >> 23) & 255) - 127;
    } else {
        return int((__double_as_longlong(double(x)) >> 52) & 2047) - 1023;
    }
}

__device__ __forceinline__ real power_of_two(int e) {
    constexpr int LIMIT = IS_FLOAT ? 126 : 1022;
    e = min(max(e, -LIMIT), LIMIT);
    if constexpr (IS_FLOAT) {
        return real(__uint_as_float((unsigned)(e + 127) << 23));
    } else {
        return real(__longlong_as_double((long long)(e + 1023) << 52));
    }
}

__device__ __forceinline__ void together() {
    if constexpr (GROUP <= 32) { __syncwarp(); } else { __syncthreads(); }
}

// The largest exponent among the threads of a sequence that share a warp.
__device__ __forceinline__ int largest_in_warp(int e) {
    if constexpr (GROUP >= 32) {
        return __reduce_max_sync(0xffffffffu, e);
    } else {
#pragma unroll
        for (int step = GROUP / 2; step; step /= 2) {
            e = max(e, __shfl_xor_sync(0xffffffffu, e, step));
        }
        return e;
    }
}

struct Vectors {
    alignas(16) real v[PER][2][K];
    alignas(16) int largest[PER][2][WARPS];
};

// Begins to find the largest exponent of the group's values; `measured` has it a slice later.
__device__ __forceinline__ int measure(Vectors& shared, int own, int turn, int local, real value) {
    const int e = largest_in_warp(exponent_of(value));
    if constexpr (WARPS > 1) {
        if ((local & 31) == 0) { shared.largest[own][turn][local >> 5] = e; }
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

__device__ __forceinline__ real dot(const real (*weights)[OWN], const real* v, int part) {
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
    first += __shfl_xor_sync(0xffffffffu, upper ? sums[0] : sums[2], 2);
    second += __shfl_xor_sync(0xffffffffu, upper ? sums[1] : sums[3], 2);
    const real kept = odd ? second : first;
    return kept + __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
}

__device__ __forceinline__ void load_weights(
    const real* __restrict__ matrix, int j, int part, real (*weights)[OWN]) {
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

// transition[i * K + j]: weight of input i in the sum of output j. Slice h of a sequence is row
// first + h * direction; its coefficients are table[slot[row] * K + j], at height 0 those of
// bottom_table. `results` are, for all sequences: the value of the root, the exponent that it lacks,
// and the least value met. Sequences stand from the longest to the shortest.
extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const real* __restrict__ transition, const real* __restrict__ table,
    const real* __restrict__ bottom_table, const real* __restrict__ top,
    const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, real under,
    real* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ results) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / GROUP, local = threadIdx.x % GROUP;
    const int j = local, part = local % 4;
    const int sequence = blockIdx.x * PER + own;
    const bool there = sequence < count;
    const int length = there ? lengths[sequence] : 0;
    const int longest = lengths[blockIdx.x * PER];
    const long long start = there ? first[sequence] : 0;
    real weights[NODES][OWN];
    load_weights(transition, j, part, weights);
    real value = 0, low = 1, unit = 1;
    int scale = 0, waiting = 0;
    long long total = 0;
    real ahead[AHEAD];
    int slots[AHEAD];
    auto row_at = [&](int h) { return start + (long long)direction * h; };
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        ahead[a] = 0;
        if (a < length) {
            const real* coefficients = a ? table : bottom_table;
            ahead[a] = coefficients[(long long)slot[row_at(a)] * K + j];
        }
        slots[a] = AHEAD + a < length ? slot[row_at(AHEAD + a)] : 0;
    }
    for (int base = 0; base < longest; base += AHEAD) {
        real now[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now[a] = ahead[a];
            const int h = base + AHEAD + a;
            ahead[a] = h < length ? table[(long long)slots[a] * K + j] : real(0);
            slots[a] = h + AHEAD < length ? slot[row_at(h + AHEAD)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const int h = base + a;
            if (h >= longest) { break; }
            const bool active = h < length, even = a % 2 == 0;
            if (h == 0) {
                value = now[a] + under;
            } else {
                const real y = dot(weights, shared.v[own][(a + 1) & 1], part);
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
                    vectors[row_at(h) * K + j] = value;
                    if (j == 0) { exponents[row_at(h)] = even && h ? scale : 0; }
                }
            }
            shared.v[own][a & 1][j] = value;
            if (even) { waiting = measure(shared, own, (a / 2) & 1, local, value); }
            together();
        }
    }
    // The root is a linear form of the last vector.
    double sum = there ? double(value) * double(top[j]) : 0.0;
    constexpr int WIDTH = GROUP < 32 ? GROUP : 32;
#pragma unroll
    for (int step = WIDTH / 2; step; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        low = min(low, __shfl_xor_sync(0xffffffffu, low, step));
    }
    if constexpr (WARPS > 1) {
        __shared__ double sums[PER][WARPS], lows[PER][WARPS];
        if ((local & 31) == 0) {
            sums[own][local >> 5] = sum;
            lows[own][local >> 5] = double(low);
        }
        __syncthreads();
        sum = 0;
        for (int w = 0; w < WARPS; ++w) {
            sum += sums[own][w];
            low = min(low, real(lows[own][w]));
        }
    }
    if (there && local == 0) {
        results[sequence] = sum;
        results[(long long)count + sequence] = double(total);
        results[2LL * count + sequence] = double(low);
    }
}

// Posteriors of the outputs of every slice, times the weight of the sequence, and `uses`: what the
// sum of each output hands to its inputs, so that input i of output j is used
// transition[i * K + j] * uses[row, j] * vectors[row below, i] times. `highest` is the largest
// exponent by which values times derivatives fell short of the root.
extern "C" __global__ void __launch_bounds__(THREADS) backward(
    const real* __restrict__ transposed, const real* __restrict__ table,
    const real* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const real* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const real* __restrict__ share,
    real* __restrict__ posteriors, real* __restrict__ uses, int* __restrict__ highest) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / GROUP, local = threadIdx.x % GROUP;
    const int j = local, part = local % 4;
    const int sequence = blockIdx.x * PER + own;
    const bool there = sequence < count;
    const int length = there ? lengths[sequence] : 0;
    const int longest = lengths[blockIdx.x * PER];
    const long long start = there ? first[sequence] : 0;
    real weights[NODES][OWN];
    load_weights(transposed, j, part, weights);
    const real weight = there ? share[sequence] : real(0);
    const bool counts = weight > 0;
    const real factor = there ? real(double(weight) / root[sequence]) : real(0);
    real derivative = there ? top[j] : real(0);
    int lack = 0, most = 0, waiting = 0;
    auto row_at = [&](int h) { return start + (long long)direction * h; };
    real ahead_table[AHEAD], ahead_vector[AHEAD];
    int ahead_exponent[AHEAD], slots[AHEAD];
    // Step s is height length - 1 - s.
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        const int h = length - 1 - a;
        ahead_table[a] = h > 0 ? table[(long long)slot[row_at(h)] * K + j] : real(0);
        ahead_vector[a] = h >= 0 ? vectors[row_at(h) * K + j] : real(0);
        ahead_exponent[a] = h >= 0 ? exponents[row_at(h)] : 0;
        slots[a] = h - AHEAD > 0 ? slot[row_at(h - AHEAD)] : 0;
    }
    for (int base = 0; base < longest; base += AHEAD) {
        real now_table[AHEAD], now_vector[AHEAD];
        int now_exponent[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now_table[a] = ahead_table[a];
            now_vector[a] = ahead_vector[a];
            now_exponent[a] = ahead_exponent[a];
            const int h = length - 1 - (base + AHEAD + a);
            ahead_table[a] = h > 0 ? table[(long long)slots[a] * K + j] : real(0);
            ahead_vector[a] = h >= 0 ? vectors[row_at(h) * K + j] : real(0);
            ahead_exponent[a] = h >= 0 ? exponents[row_at(h)] : 0;
            slots[a] = h - AHEAD > 0 ? slot[row_at(h - AHEAD)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (base + a >= longest) { break; }
            const int h = length - 1 - (base + a);
            const bool active = h >= 0, even = a % 2 == 0;
            const real handed = now_table[a] * derivative;
            shared.v[own][a & 1][j] = handed;
            together();
            if (active) {
                const real unit = power_of_two(lack) * factor;
                const long long place = row_at(h) * K + j;
                posteriors[place] = counts ? now_vector[a] * derivative * unit : real(0);
                uses[place] =
                    counts && h ? handed * power_of_two(-now_exponent[a]) * unit : real(0);
            }
            if (active) { most = max(most, lack); }
            const real y = dot(weights, shared.v[own][a & 1], part);
            int e = 0;
            if (even && base + a) { e = measured(shared, own, (a / 2 + 1) & 1, waiting); }
            if (active && h) {
                derivative = even ? y * power_of_two(-e) : y;
                lack += e - now_exponent[a];
            }
            if (even) { waiting = measure(shared, own, (a / 2) & 1, local, derivative); }
        }
    }
    if (there && local == 0) { highest[sequence] = most; }
}
